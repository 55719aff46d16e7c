"""Anchored Confidence (AnCon) for domain adaptation without labels, as a plugin for the Transfer-Learning-Library."""

from importlib import import_module

_HOMES: dict[str, str | None] = {"methods": None}
"""Name -> its module, None for a module of this package. The stub lists the other names; each is imported when it is
first asked for."""

with open(f"{__file__}i", encoding="utf-8") as _stub:  # ast, pathlib and typing would take longer to import
    for _line in _stub:
        if _line.startswith("from tllib_ancon"):
            _, _module, _, _name, *_ = _line.split()  # from MODULE import NAME as NAME
            _HOMES[_name] = _module

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if home is None:
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
