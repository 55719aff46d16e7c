"""The runs of a plan or of the demo as calls of ``main`` in this process, which is quicker than a process each."""

import contextlib
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

from tllib_ancon.cli.main import main
from tllib_ancon.laboratory import local


class Ended:
    """A process that has ended."""

    def __init__(self, status: int):
        self.returncode = status

    def poll(self) -> int:
        return self.returncode


@contextlib.contextmanager
def runs_here() -> Iterator[list[list[str]]]:
    """Gives the words of each command that was run so far."""
    made: list[list[str]] = []

    def run(command: list[str], **streams) -> Ended:
        made.append(command[4:])
        with contextlib.redirect_stdout(streams["stdout"]), contextlib.redirect_stderr(streams["stderr"]):
            return Ended(main(command[4:]))

    with mock.patch.object(local, "subprocess", SimpleNamespace(Popen=run, DEVNULL=subprocess.DEVNULL)):
        yield made
