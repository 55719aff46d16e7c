"""The layouts of data: each module of this folder registers its own, and nothing else names it."""

from importlib import import_module
from pkgutil import iter_modules

from tllib_ancon.data.layout import LAYOUTS, Layout
from tllib_ancon.runtime.errors import BadSetting, UserError, named, unknown_name

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def layout_of(dataset: str) -> Layout:
    """The layout of a dataset.

    Raises:
        UserError: an unknown name
    """
    prefix, colon, _ = dataset.partition(":")
    registered = LAYOUTS.get(dataset) or LAYOUTS.get(prefix + colon)
    if registered is None:
        raise unknown_name("dataset", dataset, _layout_names())
    return registered


def _layout_names() -> list[str]:
    """Names as ``data`` takes them, the general layouts before TLLib's datasets."""
    return [name + registered.placeholder for name, registered in LAYOUTS.items()]


def missing_dataset(root: object) -> UserError:
    """The error for a root without the name of its dataset."""
    names = ", ".join(_layout_names())
    return BadSetting(f"{named('data')} is missing: which dataset lies in {root}? Names: {names}", setting="data")
