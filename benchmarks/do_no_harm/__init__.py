"""Does an adapted model end below its start, and does a label-free criterion notice? ``run.sh`` makes the runs,
``lists.py`` the targets that are not balanced, ``table.py`` the tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from tllib_ancon.errors import UserError


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run(main: Callable[[], Any]) -> None:
    """Run a command; what is wrong with its input is one line."""
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
