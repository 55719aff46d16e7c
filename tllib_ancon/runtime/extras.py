"""Packages that not every installation has: those of an extra, such as ``tllib-ancon[report]``."""

from importlib import import_module
from importlib.util import find_spec

from tllib_ancon.runtime.errors import UserError, one_line


def require(purpose: str, *packages: str, extra: str | None = None, alternative: str = "") -> None:
    """Raise an error that says what to install where one of these packages is missing or cannot be imported.

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
        try:
            import_module(package)
        except Exception as error:  # a broken package may raise anything
            from importlib.metadata import packages_distributions  # it starts slowly

            distribution = packages_distributions().get(package, [package])[0]
            raise UserError(
                f"{purpose} needs {package}, which is installed but does not import ({type(error).__name__}: "
                f"{one_line(error)})",
                f"reinstall it: pip install --force-reinstall {distribution}{alternative}",
            ) from error
