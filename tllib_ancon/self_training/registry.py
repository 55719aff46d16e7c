"""Methods by name: what a name such as ``gce+ancon`` is composed of, and which settings it reads."""

import re
from collections.abc import Callable, Collection
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import Settings, settings_of
from tllib_ancon.runtime.errors import BadSetting, UserError, named, one_line, unknown_name
from tllib_ancon.runtime.types import Options
from tllib_ancon.self_training.method import Method, Visit, option

__all__ = [
    "ENTRY_POINT_GROUP",
    "Method",
    "Visit",
    "all_options",
    "create",
    "method_class",
    "methods_with",
    "names",
    "option",
    "register",
    "settings",
    "training_defaults",
]

ENTRY_POINT_GROUP = "tllib_ancon.methods"
"""Of other packages' methods: an entry point ``name = package.module``, a module that registers the name."""

COMPOSITIONS = ("elr", "ancon", "ancon-auto")
"""What may follow the name of a method after a plus; alone it follows self-training."""

_NAME = re.compile(rf"[a-z0-9-]+|[a-z0-9-]*\+({'|'.join(COMPOSITIONS)})")


class _Registration(NamedTuple):
    """What is known of a name: see :func:`register`."""

    method: type[Method]
    composes: Collection[str]


REGISTERED: dict[str, _Registration] = {}


def register(name: str, *, composes: Collection[str] = ()) -> Callable[[type[Method]], type[Method]]:
    """Make a method known by its name: ``@register("focal")`` above its class, a subclass of :class:`Method`.

    A module that an entry point of the group ``tllib_ancon.methods`` names does so when it is imported; see
    ``docs/own_method.md``.

    Args:
        name (str): small letters, digits and dashes; ``base+ancon`` for a composition with a class of its own;
            ``+ancon`` for the composition itself
        composes: which of ``elr``, ``ancon`` and ``ancon-auto`` may follow the name after a plus. ``ancon`` and
            ``ancon-auto`` replace the targets, so that the objective has to use them

    Raises:
        UserError: a name that is taken or not well formed, an option that is reserved
    """
    for composition in composes:
        if composition not in COMPOSITIONS:
            raise unknown_name("composition", composition, COMPOSITIONS)

    def add(method: type[Method]) -> type[Method]:
        if name in COMPOSITIONS or _is_taken(name, method) or not _NAME.fullmatch(name):
            raise UserError(
                f"method name {name!r} is taken, or has other characters than small letters, digits and dashes",
                "choose another one",
            )
        if method.targets is not Method.targets and {*composes} - {"elr"}:
            raise UserError(
                f"method {name}: a composition with AnCon would replace the class's own {named('targets')}",
                f'leave all but "elr" out of {named("composes")}',
            )
        _check_options(name, method.Options)
        REGISTERED[name] = _Registration(method, composes)
        return method

    return add


def _is_taken(name: str, method: type[Method]) -> bool:
    """Whether another definition has this name; one that is run twice, such as that of a notebook's cell, is no other
    one."""
    if name not in REGISTERED:
        return False
    registered = REGISTERED[name].method
    return (registered.__module__, registered.__qualname__) != (method.__module__, method.__qualname__)


def _check_options(name: str, options: type[Settings]) -> None:
    taken = {*signature(Method).parameters, *dir(Method), *settings_of(AdaptConfig)}
    for option_name in settings_of(options):
        if option_name in taken:
            raise UserError(
                f"method {name}: option {named(option_name)} is the name of a setting, or an attribute of Method",
                "choose another",
            )
    options(**{option_name: field.default for option_name, field in settings_of(options).items()})


def names() -> list[str]:
    """The methods that :func:`create` knows: the built-in ones first, then those of other packages that can be
    loaded."""
    for name in _entry_points():
        _failure_to_load(name)
    offered = []
    for base in REGISTERED:
        if "+" not in base:
            offered += [base, *_compositions_of(base)]
    return offered


def _compositions_of(base: str) -> list[str]:
    """The names of the compositions with a method. Self-training stands in front of none."""
    extras = [extra for extra in COMPOSITIONS if extra in REGISTERED[base].composes or f"{base}+{extra}" in REGISTERED]
    if base == "self-training":
        return extras
    return [f"{base}+{extra}" for extra in extras]


def settings(name: str | None = None) -> dict[str, FieldInfo]:
    """The settings that a method reads, its composition included, or without a name those of all methods.

    Returns: name -> field of pydantic

    Raises:
        UserError: as :func:`create`
    """
    if name is not None:
        return settings_of(method_class(name).Options)
    merged: dict[str, FieldInfo] = {}
    for method in names():
        merged = {**settings(method), **merged}
    return merged


def methods_with(option: str) -> list[str]:
    """The methods that have an option, without compositions where a method alone has it."""
    readers = [method for method in names() if option in settings(method)]
    return [method for method in readers if "+" not in method] or readers


def all_options(name: str, options: Options) -> Options:
    """Every setting of a method with its value.

    Args:
        name (str): of the method
        options: setting -> value; the others have their default

    Raises:
        UserError: as :func:`create`
    """
    readable = settings(name)
    for option_name in options:
        if option_name in readable:
            continue
        readers = methods_with(option_name)
        if not readers:
            raise unknown_name(f"option of {name}", option_name, readable)
        raise BadSetting(
            f"{named(option_name)} is an option of {' and '.join(readers[:2])}, not of {name}",
            "leave it out",
            setting=option_name,
        )
    return dict(method_class(name).Options(**options))


def training_defaults(name: str) -> Options:
    """Settings of the training whose default depends on this method, such as ``adapted``, and that default."""
    merged: dict[str, Any] = {}
    for part in reversed(method_class(name).__mro__):
        merged |= vars(part).get("training_defaults", {})
    return merged


def create(name: str, **sizes_and_options: Any) -> Method:
    """The method of that name, as a :class:`Method`.

    Args:
        name (str): a composition such as ``ancon``, ``gce+elr`` or ``nrc+ancon``; see :func:`names`
        **sizes_and_options: arguments of :class:`Method`, and the method's settings, those of :func:`settings`.
            ``nrc``, ``aad`` and ``shot`` need ``feature_dim``, schedules ``total_steps``, ``mc_dropout`` the ``head``

    Raises:
        UserError: an unknown name or option, a composition that is not offered, a package that
            fails to load, an option out of range or of another method
    """
    sizes = signature(Method).parameters
    options = {key: value for key, value in sizes_and_options.items() if key not in sizes}
    return method_class(name)(**{**sizes_and_options, **all_options(name, options)})


def method_class(name: str) -> type[Method]:
    """The class of a method, or that of its composition with the base method."""
    full_name = f"self-training+{name}" if name in COMPOSITIONS else str(name)
    base, _, extra = full_name.partition("+")
    failure = _failure_to_load(base)
    if failure is not None:
        raise UserError(failure)
    if base and full_name in REGISTERED:
        return REGISTERED[full_name].method
    if base not in REGISTERED or extra not in REGISTERED[base].composes:
        raise unknown_name("method", one_line(name), names())
    composition = REGISTERED[f"+{extra}"].method
    return _composed(composition, REGISTERED[base].method)  # type: ignore[arg-type]


@cache
def _composed(composition: type[Method], base: type[Method]) -> type[Method]:
    """A class with the loss of ``base`` whose targets or regulariser are those of the composition."""
    return type(f"{base.__name__}{composition.__name__}", (composition, base), {"__module__": base.__module__})


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Other packages' methods by name. A name of this package stays this package's."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


@cache
def _failure_to_load(name: str) -> str | None:
    """Load the method of that name if it is another package's; the reason where that is impossible."""
    entry = _entry_points().get(name)
    if entry is None or name in REGISTERED:
        return None
    package = entry.dist.name if entry.dist else entry.value
    where = f"method {named(name)} of package {package} cannot be used"
    try:
        entry.load()
    except Exception as error:
        return f"{where}: {type(error).__name__}: {one_line(error)}"
    if name not in REGISTERED:
        return f"{where}: {entry.value} does not call tllib_ancon.methods.register({name!r}, ...)"
    return None
