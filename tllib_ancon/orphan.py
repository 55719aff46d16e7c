"""A process that ends when the one that started it does: ``python -m tllib_ancon.orphan PARENT WORDS`` is the command
``tllib-ancon WORDS`` as one."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time

CHECK_EVERY = 0.2
"""Seconds; what would take the place of a lost process needs longer than this to start."""


def end_with(parent: int | None, every: float = CHECK_EVERY) -> None:
    """Let a thread look for the parent process every so many seconds, and end this process at once when it is gone. Its
    number is given as the parent knows it: the system would already tell another one for a parent that is gone."""
    threading.Thread(target=_watch, args=(parent, every), daemon=True).start()


def _watch(parent: int | None, every: float) -> None:
    while os.getppid() == parent:
        time.sleep(every)
    os._exit(1)


if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)))
    runpy.run_module("tllib_ancon", run_name="__main__", alter_sys=True)
