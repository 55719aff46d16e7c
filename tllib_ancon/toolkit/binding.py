"""Finding the toolkit of this machine."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tllib_ancon.errors import UserError, one_line, unknown_name
from tllib_ancon.toolkit.compat import enable

if TYPE_CHECKING:
    from tllib_ancon.toolkit.interface import Toolkit

TLLIB_COMMIT = "c4aa59eb565650a552b809411601d0589efbbfe4"

INSTALL = {
    "tllib": f'pip install --no-deps "git+https://github.com/thuml/Transfer-Learning-Library@{TLLIB_COMMIT}"',
    "dalib": "pip install 'tllib-ancon[tllib]'",
}
"""How to install a toolkit, in the order in which they are preferred."""


def find(name: str | None = None) -> Toolkit:
    """The toolkit of this machine: ``tllib`` if it is there, else ``dalib``.

    Args:
        name: take this one, ``"tllib"`` or ``"dalib"``. Default: the better one that is installed

    Raises:
        UserError: an unknown name; nothing to find (how to install it); a toolkit that does not import (why)
    """
    if name is not None and name not in INSTALL:
        raise unknown_name("toolkit", name, INSTALL)
    enable()
    wanted = list(INSTALL) if name is None else [name]
    installed = next((candidate for candidate in wanted if is_installed(candidate)), None)
    if installed is None:
        ways = "; or ".join(INSTALL[candidate] for candidate in wanted)
        raise UserError(f"{' and '.join(wanted)} cannot be found. Install it: {ways}")
    return _load(installed)


def is_installed(name: str) -> bool:
    """Whether ``import name`` finds a package; a folder of that name without ``__init__.py`` is none."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def _load(name: str) -> Toolkit:
    spec = find_spec(name)
    where = name if spec is None else f"{name} ({spec.origin})"
    try:
        importlib.import_module(name)
        binding = importlib.import_module(f"tllib_ancon.toolkit.{name}_binding")
    except Exception as error:  # a file of that name may do anything
        raise UserError(
            f"{where} does not import as the toolkit ({type(error).__name__}: {one_line(error)}). If it is another "
            f"program's, rename it; else install what it misses, or reinstall it: {INSTALL[name]}"
        ) from error
    found: Toolkit = binding.toolkit()
    return found
