"""The runs of a plan or of the demo as calls of ``main`` in this process, which is quicker than a process each."""

import contextlib
import subprocess
from types import SimpleNamespace
from unittest import mock

from tllib_ancon.cli.main import main
from tllib_ancon.laboratory import local


class Ended:
    """A process that has ended."""

    def __init__(self, status):
        self.returncode = status

    def poll(self):
        return self.returncode


@contextlib.contextmanager
def runs_here():
    """Gives the words of each command that was run so far."""
    made = []

    def run(command, **streams):
        made.append(command[4:])
        with contextlib.redirect_stdout(streams["stdout"]), contextlib.redirect_stderr(streams["stderr"]):
            return Ended(main(command[4:]))

    with mock.patch.object(local, "subprocess", SimpleNamespace(Popen=run, DEVNULL=subprocess.DEVNULL)):
        yield made
