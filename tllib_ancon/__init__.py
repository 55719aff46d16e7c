"""Anchored Confidence (AnCon) for domain adaptation without labels, as a plugin for the Transfer-Learning-Library."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {alias.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names}
"""Name -> its module, None for a module of this package. The stub is the only list of names; each is imported when it
is first asked for."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"{__name__}.{name}") if home is None else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
