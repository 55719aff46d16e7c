"""A process that ends when the one that started it does."""

from __future__ import annotations

import os
import threading
import time


def end_with(parent: int | None, every: float) -> None:
    """Look for the parent from a thread, and end this process at once when it is gone.

    Args:
        parent: the number of its process, as the parent knows it: one that is gone already has been replaced by now
        every: seconds between two looks
    """
    threading.Thread(target=_watch, args=(parent, every), daemon=True).start()


def _watch(parent: int | None, every: float) -> None:
    while os.getppid() == parent:
        time.sleep(every)
    os._exit(1)
