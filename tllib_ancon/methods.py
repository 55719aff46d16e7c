"""Methods by name: the registry, what a name such as ``gce+ancon`` is composed of, and which settings it reads."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import TYPE_CHECKING, Any

from pydantic.fields import FieldInfo

from tllib_ancon.config.settings import Settings, settings_of
from tllib_ancon.runtime.errors import BadSetting, UserError, named, one_line, unknown_name
from tllib_ancon.runtime.types import Options

if TYPE_CHECKING:
    from torch import Tensor

    from tllib_ancon.runtime.processes import Shard
    from tllib_ancon.self_training.method import Method, Visit, option

__all__ = [
    "ENTRY_POINT_GROUP",
    "Method",
    "Visit",
    "all_options",
    "create",
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

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def __getattr__(name: str) -> Any:
    """What a method is made of, in a module that imports torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tllib_ancon.self_training.method"), name)


@dataclass(frozen=True)
class _Registration:
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
        UserError: a name that is taken or not well formed, an option that is reserved or known with another type
    """
    _load_built_in()
    for composition in composes:
        if composition not in COMPOSITIONS:
            raise unknown_name("composition", composition, COMPOSITIONS)

    def add(method: type[Method]) -> type[Method]:
        _require_default_targets(name, method, composes)
        is_taken = name in REGISTERED and _definition(REGISTERED[name].method) != _definition(method)
        if name in COMPOSITIONS or is_taken or not _is_well_formed(name):
            raise UserError(
                f"method name {name!r} is taken, or has other characters than small letters, digits and dashes",
                "choose another one",
            )
        _check_options(name, method.Options)
        REGISTERED[name] = _Registration(method, composes)
        return method

    return add


def _is_well_formed(name: str) -> bool:
    base, plus, extra = name.partition("+")
    if not plus:
        return _NAME.fullmatch(name) is not None
    return extra in COMPOSITIONS and (not base or base in REGISTERED)


def _base_class() -> type[Method]:
    base: type[Method] = import_module("tllib_ancon.self_training.method").Method
    return base


def _require_default_targets(name: str, method: type[Method], composes: Collection[str]) -> None:
    """Raise an error for targets that a composition would replace."""
    replacing = [composition for composition in composes if composition != "elr"]
    if replacing and method.targets is not _base_class().targets:
        raise UserError(
            f"method {name}: {' and '.join(replacing)} would replace the class's own {named('targets')}",
            f"leave them out of {named('composes')}",
        )


def _check_options(name: str, options: type[Settings]) -> None:
    base = _base_class()
    for option, field in settings_of(options).items():
        if option in signature(create).parameters or hasattr(base, option):
            raise UserError(
                f"method {name}: option {named(option)} is the name of an argument of create or an attribute of Method",
                "choose another",
            )
        for registered_name, registration in REGISTERED.items():
            if settings_of(registration.method.Options).get(option, field).annotation != field.annotation:
                raise UserError(
                    f"method {name}: option {named(option)} has another type than that of {registered_name}",
                    "rename it",
                )
    options(**{option: field.default for option, field in settings_of(options).items()})


def _load_built_in() -> None:
    import_module("tllib_ancon.self_training")


def _definition(method: type[Method]) -> tuple[str, str]:
    """Equal for one definition that is run twice, such as that of a notebook's cell."""
    return method.__module__, method.__qualname__


def names() -> list[str]:
    """The methods that :func:`create` knows: the built-in ones first, then those of other packages that can be
    loaded."""
    loaded = [name for name in _entry_points() if _failure(name) is None]
    registered = [name for name in REGISTERED if "+" not in name]
    offered = []
    for base in dict.fromkeys([*registered, *loaded]):
        offered += [base, *_compositions_of(base)]
    return offered


def _compositions_of(base: str) -> list[str]:
    """The names of what is composed with a method; self-training stands in front of none."""
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
        for option, field in settings(method).items():
            merged.setdefault(option, field)
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
    owner = method_class(name).Options
    _require_options_of(name, options)
    return dict(owner(**options))


def training_defaults(name: str) -> Options:
    """Settings of the training whose default depends on this method, such as ``adapted``, and that default."""
    merged: dict[str, Any] = {}
    for part in reversed(method_class(name).__mro__):
        merged |= vars(part).get("training_defaults", {})
    return merged


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
        head: (B, D) -> (B, K) logits, the model's head; needed by ``mc_dropout``
        shard: of many processes, the samples that this one visits. Default: all
        **options: the method's settings, those of :func:`settings`

    Raises:
        UserError: an unknown name or option, a composition that is not offered, a package that
            fails to load, an option out of range or of another method
    """
    method = method_class(name)
    _require_options_of(name, options)
    return method(
        num_samples=num_samples,
        num_classes=num_classes,
        feature_dim=feature_dim,
        total_steps=total_steps,
        head=head,
        shard=shard,
        **options,
    )


def method_class(name: str) -> type[Method]:
    """The class of a method, or that of its composition with the base method."""
    full_name = f"self-training+{name}" if name in COMPOSITIONS else str(name)
    base, _, extra = full_name.partition("+")
    failure = _failure(base)
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


def _require_options_of(name: str, options: Iterable[str]) -> None:
    """Raise an error for an option that this method does not have, with the methods that have it."""
    readable = settings(name)
    for option in options:
        if option in readable:
            continue
        readers = methods_with(option)
        if not readers:
            raise unknown_name(f"option of {name}", option, list(readable))
        raise BadSetting(
            f"{named(option)} is an option of {' and '.join(readers[:2])}, not of {name}",
            "leave it out",
            setting=option,
        )


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Other packages' methods by name; one whose name is taken is left out with a warning."""
    _load_built_in()
    by_name: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in (*REGISTERED, *COMPOSITIONS, *by_name):
            warnings.warn(
                f"method {named(entry.name)} of package {_package(entry)} is left out: the name is taken", stacklevel=2
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
    where = f"method {named(name)} of package {_package(entry)} cannot be used"
    try:
        entry.load()
    except Exception as error:
        return f"{where}: {type(error).__name__}: {one_line(error)}"
    if name not in REGISTERED:
        return f"{where}: {entry.value} does not call tllib_ancon.methods.register({name!r}, ...)"
    return None


def _package(entry: EntryPoint) -> str:
    if entry.dist is not None:
        return entry.dist.name
    return entry.value
