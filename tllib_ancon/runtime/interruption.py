"""SIGTERM and Ctrl-C: a training loop ends its step and stops, and continues later; any other code is left at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from tllib_ancon.runtime.errors import Interrupted

Batch = TypeVar("Batch")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
OF_A_LOST_PROCESS = (RuntimeError, OSError, EOFError)
"""What a run may meet where the signal ended another of its processes: PyTorch's message, or a broken connection."""

AT_ONCE = 1.0
"""Seconds within which signals count as one: a launcher and the system may both send it to every process."""


class Interruption:
    """A context in which the first SIGTERM or SIGINT waits until :meth:`watch` sees it; a later one acts at once.
    Leaving it raises :class:`Interrupted` for one that came after the last batch or ended a process of the run. Outside
    the main thread it does nothing."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._came = 0.0
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Interruption:
        if _in_main_thread():
            self._previous = {number: signal.signal(number, self._remember) for number in SIGNALS}
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        may_be_of_a_signal = isinstance(error, OF_A_LOST_PROCESS)  # which the signal may have reached first
        if may_be_of_a_signal and self.signal is None and self._previous:
            time.sleep(AT_ONCE)
        self._restore()
        if self.signal is None:
            return
        if may_be_of_a_signal:
            raise Interrupted(self.signal, "while images were loaded") from error
        if error is None:
            raise Interrupted(self.signal, "after the last epoch")

    def watch(self, batches: Iterable[Batch], epoch: int) -> Iterator[Batch]:
        """The same batches until a signal comes; what the loop does with the last one is finished first."""
        for batch in batches:
            yield batch
            if self.signal is not None:
                raise Interrupted(self.signal, f"in epoch {epoch}")

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            self._came = time.monotonic()
        elif time.monotonic() - self._came > AT_ONCE:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous = {}


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """In this context the first SIGTERM raises ``Interrupted``, and later ones do nothing."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Interrupted(number)

    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
