"""The method that settings name: its options are checked here, before a model or images are open."""

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import SettingsType, defined, settings_of
from tllib_ancon.runtime.errors import unknown_name


def choose_method(config: SettingsType) -> SettingsType:
    """The settings, in an adaptation with every option that is passed checked by the method.

    :func:`~tllib_ancon.opening.defaults.resolve` fills in the others.

    Raises:
        UserError: an unknown method or setting, an option of another method, a value out of its range
    """
    if not isinstance(config, AdaptConfig):
        return config
    options_of_methods = methods.settings()
    for name in config.options:
        if name not in options_of_methods:
            raise unknown_name("setting", name, {**settings_of(type(config)), **options_of_methods})
    options = methods.all_options(config.method, config.options)
    return config.replace(**{name: options[name] for name in defined(config.options)})
