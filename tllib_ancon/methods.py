"""Methods by name: what a name such as ``gce+ancon`` is composed of, which settings it reads, and how to add one."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from tllib_ancon.errors import UserError, one_line, unknown_name
from tllib_ancon.self_training import options as built_in
from tllib_ancon.settings import Settings, default_of, from_mapping, settings_of, types_of

if TYPE_CHECKING:
    from torch import Tensor

    from tllib_ancon.self_training.method import Method, Part, Task, Visit, no_targets, one_hot_targets
    from tllib_ancon.self_training.processes import Shard

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

_PARTS = ("Method", "Part", "Task", "Visit", "no_targets", "one_hot_targets")
_RESERVED = ("name", "num_samples", "num_classes", "feature_dim", "total_steps", "head", "shard", "dataset")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


_Options = Any
"""A frozen dataclass of :class:`~tllib_ancon.settings.Settings`."""


@dataclass(frozen=True)
class NoOptions(Settings):
    """Of a method without settings."""


@dataclass(frozen=True)
class _Extra:
    """What composes with a method: ``apply(method, task, options)`` changes it in place.

    Attributes:
        missing: what a method does that it does not compose with
    """

    options: _Options
    apply: str
    missing: str
    training_defaults: Mapping[str, Any]


@dataclass(frozen=True)
class _Registration:
    builder: Callable[[Task, Any], Method] | str
    options: _Options
    composes: tuple[str, ...]
    dataset_defaults: Mapping[str, Mapping[str, Any]]
    training_defaults: Mapping[str, Any]


_EXTRAS = {
    "elr": _Extra(built_in.ELROptions, "elr", "takes no regulariser", {}),
    "ancon": _Extra(built_in.AnConOptions, "ancon", "uses no pseudo-label that could be smoothed", {}),
    "ancon-auto": _Extra(
        built_in.AnConAutoOptions, "ancon_auto", "uses no pseudo-label that could be smoothed", {"criterion": "last"}
    ),
}
_SHORT_NAMES = {f"self-training+{extra}": extra for extra in _EXTRAS}
_LONG_NAMES = {short: long for long, short in _SHORT_NAMES.items()}
_REGISTERED: dict[str, _Registration] = {}


def __getattr__(name: str) -> Any:
    if name not in _PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tllib_ancon.self_training.method"), name)


def register(
    name: str,
    builder: Callable[[Task, Any], Method] | str,
    options: _Options = NoOptions,
    composes: Sequence[str] = (),
    *,
    dataset_defaults: Mapping[str, Mapping[str, Any]] | None = None,
    training_defaults: Mapping[str, Any] | None = None,
) -> None:
    """Make a method known by its name. A module that an entry point of the group ``tllib_ancon.methods`` names calls
    this when it is imported; see ``docs/own_method.md``.

    Args:
        name (str): small letters, digits and dashes; or ``base+ancon`` for a composition with a builder of its own
        builder: ``(task, options) -> Method``, or where it is, as ``"module:function"``
        options: frozen dataclass of :class:`~tllib_ancon.settings.Settings`, all with defaults. Default: none
        composes: which of ``elr``, ``ancon`` and ``ancon-auto`` may follow the name after a plus. ``ancon`` and
            ``ancon-auto`` take the place of the method's refiner, so that its objective has to use the targets
        dataset_defaults: dataset -> option -> default on this dataset
        training_defaults: setting of the training -> default with this method, such as ``{"adapted": "all"}``

    Raises:
        UserError: a name that is taken or not well formed, an option that is reserved or known with another type
    """
    base, plus, extra = name.partition("+")
    if not _NAME.fullmatch(base) or (plus and (base not in _REGISTERED or extra not in _EXTRAS)):
        raise UserError(f"method name {name!r}: expected small letters, digits and dashes")
    if name in _LONG_NAMES or (name in _REGISTERED and not _same(_REGISTERED[name].builder, builder)):
        raise UserError(f"method name {name!r} is taken; choose another one")
    for extra in composes:
        if extra not in _EXTRAS:
            raise unknown_name("composition", extra, _EXTRAS)
    _check_options(name, options)
    _REGISTERED[name] = _Registration(
        builder, options, tuple(composes), dataset_defaults or {}, training_defaults or {}
    )


def names() -> list[str]:
    """The methods that :func:`create` knows: the built-in ones first, then those of other packages that can be
    loaded."""
    loaded = [name for name in _entry_points() if _failure(name) is None]
    bases = dict.fromkeys([*(name for name in _REGISTERED if "+" not in name), *loaded])
    composed = [(base, f"{base}+{extra}", extra) for base in bases for extra in ("", *_EXTRAS)]
    known = [
        long.removesuffix("+")
        for base, long, extra in composed
        if not extra or extra in _REGISTERED[base].composes or long in _REGISTERED
    ]
    return [_SHORT_NAMES.get(name, name) for name in known]


def settings(name: str | None = None) -> dict[str, Field[Any]]:
    """The settings that a method reads, its composition included, or without a name those of all methods.

    Returns: name -> field, whose ``type`` is the type and whose metadata hold a :class:`~tllib_ancon.settings.Spec`

    Raises:
        UserError: as :func:`create`
    """
    if name is None:
        merged: dict[str, Field[Any]] = {}
        for known in names():
            merged = {**merged, **{option: merged.get(option, field) for option, field in settings(known).items()}}
        return merged
    owner = _options_class(name)
    return {option: _typed(field, types_of(owner)[option]) for option, field in settings_of(owner).items()}


def resolve(name: str, given: Mapping[str, Any], dataset: str | None = None) -> dict[str, Any]:
    """Every setting of a method with its value.

    Args:
        name (str): of the method
        given: setting -> value; what is not given has its default
        dataset (str): on which some defaults depend, such as ``OfficeHome``

    Raises:
        UserError: as :func:`create`
    """
    resolved = _resolved(name, given, dataset)
    return {option: getattr(resolved, option) for option in settings_of(type(resolved))}


def training_defaults(name: str) -> dict[str, Any]:
    """Settings of the training whose default depends on this method, such as ``adapted``, and that default."""
    registration, extra = _find(name)
    return {**registration.training_defaults, **(_EXTRAS[extra].training_defaults if extra else {})}


def create(
    name: str,
    *,
    num_samples: int,
    num_classes: int,
    feature_dim: int | None = None,
    total_steps: int | None = None,
    head: Callable[[Tensor], Tensor] | None = None,
    shard: Shard | None = None,
    dataset: str | None = None,
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
        dataset (str): on which some defaults depend, such as ``OfficeHome``
        **options: the method's settings, those of :func:`settings`

    Raises:
        UserError: an unknown name (with the nearest match), a composition that is not offered, a method of another
            package that cannot be loaded, an option that is unknown (with the nearest match), of another method or out
            of range
    """
    registration, extra = _find(name)
    resolved = _resolved(name, options, dataset)
    parts = import_module("tllib_ancon.self_training.method")
    task = parts.Task(num_samples, num_classes, feature_dim, total_steps, head, shard)
    method: Method = _function(registration.builder)(task, resolved)
    if extra is not None:
        _function(f"tllib_ancon.self_training.builtin:{_EXTRAS[extra].apply}")(method, task, resolved)
    method.shard = shard
    return method


def _find(name: str) -> tuple[_Registration, str | None]:
    """The registration behind a name, and what is composed with it by the general rule.

    Raises:
        UserError: an unknown name, a composition that is not offered, a failure of another package
    """
    long = _LONG_NAMES.get(name, name)
    base, _, extra = long.partition("+")
    failure = _failure(base)
    if failure is not None:
        raise UserError(failure)
    if long in _REGISTERED:
        return _REGISTERED[long], None
    if base not in _REGISTERED or extra not in _EXTRAS:
        raise unknown_name("method", name, names())
    if extra not in _REGISTERED[base].composes:
        offered = [known for known in names() if known.startswith(f"{base}+")]
        raise UserError(
            f"method {name!r} is not offered: {base} {_EXTRAS[extra].missing}; there is {', '.join([base, *offered])}"
        )
    return _REGISTERED[base], extra


def _options_class(name: str) -> _Options:
    registration, extra = _find(name)
    return registration.options if extra is None else _joined(registration.options, _EXTRAS[extra].options)


@cache
def _joined(*owners: _Options) -> _Options:
    return dataclass(frozen=True)(type("Options", owners, {}))


def _resolved(name: str, given: Mapping[str, Any], dataset: str | None) -> Settings:
    owner = _options_class(name)
    own = settings_of(owner)
    for option in given:
        if option not in own:
            raise _foreign(option, name, list(own))
    if given.get("smoothing") == "adaptive":
        raise UserError("`smoothing=adaptive` is a method of its own now: ancon-auto, also as gce+ancon-auto, ...")
    defaults = _find(name)[0].dataset_defaults.get(dataset or "", {})
    resolved: Settings = from_mapping(owner, {**defaults, **given})
    return resolved


def _foreign(option: str, name: str, own: list[str]) -> UserError:
    readers = [known for known in names() if option in settings(known)]
    if not readers:
        return unknown_name(f"option of {name}", option, own)
    plain = [known for known in readers if "+" not in known] or readers
    shown = " and ".join(plain[:2])
    return UserError(f"`{option}` is an option of {shown}, not of {name}; leave it out")


def _check_options(name: str, options: _Options) -> None:
    types = types_of(options)
    for option, field in settings_of(options).items():
        if option in _RESERVED:
            raise UserError(f"method {name}: option `{option}` is the name of an argument of create; choose another")
        if default_of(field) is MISSING:
            raise UserError(f"method {name}: option `{option}` has no default")
        for other, registration in _REGISTERED.items():
            if types_of(registration.options).get(option, types[option]) != types[option]:
                raise UserError(f"method {name}: option `{option}` has another type than that of {other}")
    options()


def _typed(field: Field[Any], kind: Any) -> Field[Any]:
    typed = copy.copy(field)
    typed.type = kind
    return typed


def _function(where: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(where, str):
        return where
    module, _, function = where.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _same(one: Any, other: Any) -> bool:
    """Whether two builders are one definition, such as that of a notebook's cell that is run again."""
    return bool(_where(one) == _where(other))


def _where(builder: Any) -> Any:
    return (builder.__module__, builder.__qualname__) if hasattr(builder, "__qualname__") else builder


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Those of other packages; one whose name is taken is left out with a warning."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in _BUILT_IN or entry.name in found:
            warnings.warn(
                f"method `{entry.name}` of package {_package(entry)} is left out: the name is taken", stacklevel=2
            )
        else:
            found[entry.name] = entry
    return found


@cache
def _failure(name: str) -> str | None:
    """Load the method of that name if it is another package's; the reason where that is impossible."""
    entry = _entry_points().get(name)
    if entry is None or name in _REGISTERED:
        return None
    where = f"method `{name}` of package {_package(entry)} cannot be used"
    try:
        entry.load()
    except Exception as error:
        return f"{where}: {type(error).__name__}: {one_line(error)}"
    if name not in _REGISTERED:
        return f"{where}: {entry.value} does not call tllib_ancon.methods.register({name!r}, ...)"
    return None


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _register_built_in() -> None:
    everything = ("elr", "ancon", "ancon-auto")
    for name, options, composes in (
        ("self-training", built_in.SelfTrainingOptions, everything),
        ("gce", built_in.GCEOptions, everything),
        ("shot", built_in.SHOTOptions, everything),
        ("nrc", built_in.NRCOptions, ("elr",)),
        ("nrc+ancon", built_in.NRCAnConOptions, ()),
        ("nrc+ancon-auto", built_in.NRCAnConAutoOptions, ()),
        ("aad", built_in.AaDOptions, ("elr",)),
        ("aad+ancon", built_in.AaDAnConOptions, ()),
        ("aad+ancon-auto", built_in.AaDAnConAutoOptions, ()),
        ("shot-im", NoOptions, ("elr",)),
    ):
        function = name.replace("-", "_").replace("+", "_")
        defaults = built_in.AAD_BY_DATASET if options.__name__.startswith("AaD") else None
        register(name, f"tllib_ancon.self_training.builtin:{function}", options, composes, dataset_defaults=defaults)
    one_pass = {"epochs": 1, "adapted": "all"}
    register("adabn", "tllib_ancon.self_training.builtin:adabn", training_defaults=one_pass)


_register_built_in()
_BUILT_IN = frozenset({*_REGISTERED, *_LONG_NAMES})
