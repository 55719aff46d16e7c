"""A process that ends when the one that started it does.

``python -m tllib_ancon.laboratory.orphan PARENT WORDS`` is the command ``tllib-ancon WORDS`` as such a process.
"""

import os
import runpy
import sys
import threading
import time


def _end_with(parent: int | None, every: float = 0.2) -> None:
    """End this process when its parent is gone, whose number the parent gives: the system would tell another one."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with(int(sys.argv.pop(1)))
    runpy.run_module("tllib_ancon", run_name="__main__", alter_sys=True)
