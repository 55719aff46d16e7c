"""A command that ends when the process that started it does: ``python -m tllib_ancon.paper.child PARENT WORDS``."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Sequence

CHECK_EVERY = 0.2
"""Seconds; what would take the place of a lost command needs longer than this to start."""


def command(words: Sequence[str]) -> list[str]:
    """The command line of ``tllib-ancon WORDS`` as a child of this process."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *words]


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(CHECK_EVERY)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    parent = int(sys.argv.pop(1))
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    runpy.run_module("tllib_ancon", run_name="__main__", alter_sys=True)
