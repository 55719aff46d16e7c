"""A command that ends when the process that started it does: ``python -m tllib_ancon.paper.child PARENT WORDS``."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from tllib_ancon.orphan import end_with

CHECK_EVERY = 0.2
"""Seconds; what would take the place of a lost command needs longer than this to start."""


def command(words: Sequence[str]) -> list[str]:
    """The command line of ``tllib-ancon WORDS`` as a child of this process."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *words]


if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)), CHECK_EVERY)
    runpy.run_module("tllib_ancon", run_name="__main__", alter_sys=True)
