"""The runs of a plan or of the demo as calls of ``main`` in this process, which is quicker than a process each."""

import contextlib
from concurrent.futures import Future
from unittest import mock

from tllib_ancon.laboratory.engine import make


class Here:
    """An engine that makes runs in this process."""

    def __init__(self):
        self.made = []

    def submit(self, run):
        self.made.append(run.words)
        future = Future()
        future.set_result(make(run))
        return future

    def end(self):
        """Nothing runs."""


@contextlib.contextmanager
def runs_here():
    """Gives the words of each command that was run so far."""
    engine = Here()
    with (
        mock.patch("tllib_ancon.laboratory.benchmark.LocalEngine", return_value=engine),
        mock.patch("tllib_ancon.laboratory.demo.LocalEngine", return_value=engine),
    ):
        yield engine.made
