"""Methods by name: the registry, what a name such as ``gce+ancon`` is composed of, and which settings it reads."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic.fields import FieldInfo

from tllib_ancon.errors import UserError, one_line, unknown_name
from tllib_ancon.settings import Settings, settings_class, settings_of

if TYPE_CHECKING:
    from torch import Tensor

    from tllib_ancon.processes import Shard
    from tllib_ancon.self_training.method import Method, Part, Task, Visit, no_targets, one_hot_targets

__all__ = [
    "ENTRY_POINT_GROUP",
    "Method",
    "Part",
    "Task",
    "Visit",
    "create",
    "names",
    "no_targets",
    "one_hot_targets",
    "register",
    "resolve",
    "settings",
    "training_defaults",
]

ENTRY_POINT_GROUP = "tllib_ancon.methods"
"""Of other packages' methods: an entry point ``name = package.module``, a module that registers the name."""

BUILT_IN = ("self-training", "gce", "shot", "nrc", "aad", "shot-im", "tent", "eta", "adabn")
COMPOSITIONS = {
    "elr": "takes no regulariser",
    "ancon": "uses no pseudo-label that could be smoothed",
    "ancon-auto": "uses no pseudo-label that could be smoothed",
}
"""What may follow the name of a method after a plus (alone it follows self-training), and why a method does not compose
with it."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
Builder = TypeVar("Builder", bound=Callable[..., Any])


def __getattr__(name: str) -> Any:
    """What a method is made of, in a module that imports torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tllib_ancon.self_training.method"), name)


@dataclass(frozen=True)
class Registration:
    """What is known of a name: see :func:`register`."""

    builder: Callable[..., Any]
    options: type[Settings]
    composes: Collection[str]
    training_defaults: Mapping[str, Any]


REGISTERED: dict[str, Registration] = {}


def register(
    name: str,
    *,
    options: type[Settings] = Settings,
    composes: Collection[str] = (),
    training_defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[[Builder], Builder]:
    """Make a method known by its name: ``@register("focal", options=FocalOptions)`` above its builder.

    A builder is a function ``(task, options) -> Method``, that of a composition ``(method, task, options) -> None``.

    A module that an entry point of the group ``tllib_ancon.methods`` names does so when it is imported; see
    ``docs/own_method.md``.

    Args:
        name (str): small letters, digits and dashes; ``base+ancon`` for a composition with a builder of its own;
            ``+ancon`` for the composition itself
        options: subclass of :class:`~tllib_ancon.settings.Settings`, all with defaults. Default: none
        composes: which of ``elr``, ``ancon`` and ``ancon-auto`` may follow the name after a plus. ``ancon`` and
            ``ancon-auto`` take the place of the method's refiner, so that its objective has to use the targets
        training_defaults: setting of the training -> default with this method, such as ``{"adapted": "all"}``

    Raises:
        UserError: a name that is taken or not well formed, an option that is reserved or known with another type
    """
    _load_built_in()
    base, plus, extra = name.partition("+")
    well_formed = extra in COMPOSITIONS and (not base or base in REGISTERED) if plus else _NAME.fullmatch(name)
    if not well_formed:
        raise UserError(f"method name {name!r}: expected small letters, digits and dashes")
    for composition in composes:
        if composition not in COMPOSITIONS:
            raise unknown_name("composition", composition, COMPOSITIONS)
    for option, own in settings_of(options).items():
        if option in signature(create).parameters:
            raise UserError(f"method {name}: option `{option}` is the name of an argument of create; choose another")
        if own.is_required():
            raise UserError(f"method {name}: option `{option}` has no default; give it one")
        for other, registration in REGISTERED.items():
            if settings_of(registration.options).get(option, own).annotation != own.annotation:
                raise UserError(f"method {name}: option `{option}` has another type than that of {other}; rename it")
    options(**{option: own.default for option, own in settings_of(options).items()})

    def add(builder: Builder) -> Builder:
        if name in COMPOSITIONS or (name in REGISTERED and _where(REGISTERED[name].builder) != _where(builder)):
            raise UserError(f"method name {name!r} is taken; choose another one")
        REGISTERED[name] = Registration(builder, options, composes, training_defaults)
        return builder

    return add


def _load_built_in() -> None:
    import_module("tllib_ancon.self_training")


def _where(builder: Callable[..., Any]) -> tuple[str, str]:
    """Equal for one definition that is run twice, such as that of a notebook's cell."""
    return builder.__module__, getattr(builder, "__qualname__", "")


def names() -> list[str]:
    """The methods that :func:`create` knows: the built-in ones first, then those of other packages that can be
    loaded."""
    loaded = [name for name in _entry_points() if _failure(name) is None]
    bases = dict.fromkeys([*BUILT_IN, *(name for name in REGISTERED if "+" not in name), *loaded])
    offered = []
    for base in bases:
        offered.append(base)
        for extra in COMPOSITIONS:
            if extra in REGISTERED[base].composes or f"{base}+{extra}" in REGISTERED:
                offered.append(extra if base == "self-training" else f"{base}+{extra}")
    return offered


def settings(name: str | None = None) -> dict[str, FieldInfo]:
    """The settings that a method reads, its composition included, or without a name those of all methods.

    Returns: name -> field of pydantic

    Raises:
        UserError: as :func:`create`
    """
    if name is not None:
        return settings_of(_options_class(name))
    merged: dict[str, FieldInfo] = {}
    for known in names():
        merged |= {option: field for option, field in settings(known).items() if option not in merged}
    return merged


def resolve(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a method with its value.

    Args:
        name (str): of the method
        given: setting -> value; what is not given has its default

    Raises:
        UserError: as :func:`create`
    """
    return dict(_resolved(name, given))


def training_defaults(name: str) -> dict[str, Any]:
    """Settings of the training whose default depends on this method, such as ``adapted``, and that default."""
    return {setting: value for registration in _find(name) for setting, value in registration.training_defaults.items()}


def create(
    name: str,
    *,
    num_samples: int,
    num_classes: int,
    feature_dim: int | None = None,
    total_steps: int | None = None,
    head: Callable[[Tensor], Tensor] | None = None,
    shard: Shard | None = None,
    **options: Any,
) -> Method:
    """The method of that name, as a :class:`Method`.

    Args:
        name (str): a composition such as ``ancon``, ``gce+elr`` or ``nrc+ancon``; see :func:`names`
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head; needed by ``nrc``, ``aad`` and ``shot``
        total_steps (int): I, steps of the whole training; needed by schedules
        head: (B, D) -> (B, K) logits, the model's head; needed by ``confidence="mc-dropout"``
        shard: of many processes, the samples that this one visits. Default: all
        **options: the method's settings, those of :func:`settings`

    Raises:
        UserError: an unknown name or option, a composition that is not offered, a package that
            fails to load, an option out of range or of another method
    """
    from tllib_ancon.self_training.method import Task

    registration, *compositions = _find(name)
    resolved = _resolved(name, options)
    task = Task(num_samples, num_classes, feature_dim, total_steps, head, shard)
    method: Method = registration.builder(task, resolved)
    for composition in compositions:
        composition.builder(method, task, resolved)
    method.shard = shard
    return method


def _find(name: str) -> list[Registration]:
    """The registrations of a base method and of its composition."""
    if not isinstance(name, str):
        raise UserError(f"`method` must be text, got {name!r}")
    long = f"self-training+{name}" if name in COMPOSITIONS else name
    base, _, extra = long.partition("+")
    failure = _failure(base)
    if failure is not None:
        raise UserError(failure)
    if base and long in REGISTERED:
        return [REGISTERED[long]]
    if base not in REGISTERED or extra not in COMPOSITIONS:
        raise unknown_name("method", name, names())
    if extra not in REGISTERED[base].composes:
        offered = ", ".join(other for other in names() if other == base or other.startswith(f"{base}+"))
        raise UserError(f"method {name!r} is not offered: {base} {COMPOSITIONS[extra]}; there is {offered}")
    return [REGISTERED[base], REGISTERED[f"+{extra}"]]


@cache
def _joined(*owners: type[Settings]) -> type[Settings]:
    return owners[0] if len(owners) == 1 else settings_class("Options", *owners)


def _options_class(name: str) -> type[Settings]:
    """The class of all settings of a method. The composition's options come first: they may be a subclass of the
    base's."""
    return _joined(*(registration.options for registration in reversed(_find(name))))


def _resolved(name: str, given: Mapping[str, Any]) -> Settings:
    owner = _options_class(name)
    own = list(settings_of(owner))
    for option in given:
        if option not in own:
            readers = [known for known in names() if option in settings(known)]
            if not readers:
                raise unknown_name(f"option of {name}", option, own)
            plain = [known for known in readers if "+" not in known] or readers
            raise UserError(f"`{option}` is an option of {' and '.join(plain[:2])}, not of {name}; leave it out")
    return owner(**given)


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Other packages' methods by name; one whose name is taken is left out with a warning."""
    _load_built_in()
    by_name: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in (*BUILT_IN, *COMPOSITIONS, *by_name):
            warnings.warn(
                f"method `{entry.name}` of package {_package(entry)} is left out: the name is taken", stacklevel=2
            )
        else:
            by_name[entry.name] = entry
    return by_name


@cache
def _failure(name: str) -> str | None:
    """Load the method of that name if it is another package's; the reason where that is impossible."""
    entry = _entry_points().get(name)
    if entry is None or name in REGISTERED:
        return None
    where = f"method `{name}` of package {_package(entry)} cannot be used"
    try:
        entry.load()
    except Exception as error:
        return f"{where}: {type(error).__name__}: {one_line(error)}"
    if name not in REGISTERED:
        return f"{where}: {entry.value} does not call tllib_ancon.methods.register({name!r}, ...)"
    return None


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
