"""Packages that not every installation has: those of an extra, such as ``tllib-ancon[report]``."""

from importlib.util import find_spec

from tllib_ancon.runtime.errors import UserError


def require(purpose: str, *packages: str, extra: str | None = None, alternative: str = "") -> None:
    """Raise an error that says what to install where one of these packages is missing.

    Args:
        purpose: what needs the packages: the beginning of the message
        packages: names to import
        extra: the extra that brings them; None for packages that no extra brings
        alternative: what else the user can do, at the end of the message
    """
    for package in packages:
        if find_spec(package) is None:
            to_install = package if extra is None else f"'tllib-ancon[{extra}]'"
            raise UserError(f"{purpose} needs {package}: pip install {to_install}{alternative}")
