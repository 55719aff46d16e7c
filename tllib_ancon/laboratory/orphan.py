"""A process that ends when the one that started it does.

``python -m tllib_ancon.laboratory.orphan PARENT WORDS`` is the command ``tllib-ancon WORDS`` as such a process.
"""

import os
import runpy
import sys
import threading
import time

POLL = 0.2
"""Seconds between two looks at the parent."""


def _end_with(parent: int) -> None:
    """End this process when its parent is gone. The parent gives its number: the system gives that of another process
    as soon as the parent has ended."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    runpy.run_module("tllib_ancon", run_name="__main__", alter_sys=True)
