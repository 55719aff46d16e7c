"""How one of many processes ends."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit
from tllib_ancon.cli import many_processes

class Kept:
    def __del__(self):
        print("the interpreter ended")

kept = Kept()
last = many_processes.LastAtExit()
atexit.register(print, "handlers ran")
print("all was said", end=" ")
last.status = {status}
"""


def test_the_process_ends_after_its_handlers_and_before_the_interpreter() -> None:
    for status in (0, 3):
        words = [sys.executable, "-c", PROGRAM.format(status=status)]
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (process.returncode, process.stdout, process.stderr) == (status, "all was said handlers ran\n", "")


def test_without_a_status_the_process_ends_as_any_other() -> None:
    words = [sys.executable, "-c", PROGRAM.format(status=None)]
    process = subprocess.run(words, capture_output=True, text=True, check=True)
    assert process.stdout == "all was said handlers ran\nthe interpreter ended\n"
