"""Worker processes that load batches for several loaders, and the errors of those that are lost."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from tllib_ancon.runtime.errors import BadImages, UserError, named, one_line

ReadBatch = Callable[[list[int]], Any]
"""Keys of a batch -> the batch."""

KILLED = "DataLoader worker (pid"
"""How PyTorch's message about a worker that was killed starts."""
PINNING_ENDED = "Pin memory thread exited unexpectedly"
"""How PyTorch's message starts where an error ended its thread that pins batches."""


class _WorkersLost(UserError, RuntimeError):
    """A process that loads images ended without being asked to."""

    def __init__(self, reason: str):
        script = ""
        if multiprocessing.get_start_method() != "fork":
            script = f"in a script, call it under if __name__ == '__main__', or pass {named('workers', '0')}; "
        super().__init__(
            f"a process that loads images ended without a word ({reason}); {script}where memory is short, pass fewer "
            f"{named('workers')} or a smaller {named('batch_size')}"
        )


@contextmanager
def watching_workers() -> Iterator[None]:
    """In this context a killed worker is one line, in whichever statement PyTorch's handler of SIGCHLD raises."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith(KILLED):
            raise
        raise _WorkersLost(one_line(str(error))) from error


class Workers:
    """Processes that load batches for any number of loaders, one loader at a time, until :meth:`close`.

    A data loader of torch starts processes of its own, so that a training loop with four loaders would have four times
    as many.

    Args:
        count: number of processes; with 0 this process loads, as it does in a worker of :class:`multiprocessing.Pool`,
            which may start none
        persistent: whether they outlive a pass. Default: True
    """

    def __init__(self, count: int, persistent: bool = True):
        self.count = count
        if multiprocessing.current_process().daemon:
            self.count = 0
        self.persistent = persistent
        self.functions: list[ReadBatch] = []
        self.requests = _Requests()
        self._loader: DataLoader[Any] | None = None

    def add(self, read_batch: ReadBatch) -> None:
        """Register a function that will be called; processes that run already are started again."""
        self.functions.append(read_batch)
        self.close()

    def batches(self, read_batch: ReadBatch, keys_of_batches: Iterable[list[int]]) -> Iterator[Any]:
        """What the function returns for the keys of each batch."""
        if self.count == 0:
            yield from map(read_batch, keys_of_batches)
            return
        number = self.functions.index(read_batch)
        requests = ((number, keys) for keys in keys_of_batches)
        self.requests.current = requests
        if self._loader is None:
            self._loader = DataLoader(
                _Results(self.functions),
                batch_size=None,
                sampler=self.requests,
                num_workers=self.count,
                worker_init_fn=_leave_signals_to_the_parent,
                persistent_workers=self.persistent,
                pin_memory=torch.cuda.is_available(),
                generator=torch.Generator(),
            )
        try:
            for batch in _batches_of(self._loader):
                if self.requests.current is not requests:
                    raise RuntimeError("two loaders read through the same workers at once; give each its own")
                if isinstance(batch, UserError):
                    raise batch
                yield batch
        except _WorkersLost:
            self.close()
            raise

    def close(self) -> None:
        """End the processes; the next pass starts them again."""
        self._loader = None


class _Requests:
    """What the processes are to load now, as a sampler: the number of a function and the keys of each batch."""

    current: Iterator[tuple[int, list[int]]] = iter(())

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        return self.current


class _Results(Dataset[Any]):
    """Item (n, keys) is what function n returns for these keys, or the error of bad input.

    An error that a worker raises gets the text of its traceback as its message.
    """

    def __init__(self, functions: Sequence[ReadBatch]):
        self.functions = functions

    def __getitem__(self, request: tuple[int, list[int]]) -> Any:
        number, keys = request
        try:
            return self.functions[number](keys)
        except UserError as error:
            return error


def _batches_of(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of a loader; a lost worker is one line, also where a pass that was left early has batches waiting."""
    batches: Any = loader._iterator  # of the last pass, which PyTorch empties first
    try:
        with _naming_what_cannot_be_sent():
            batches = iter(loader)
        _leave_errors_of_pinning_to_this_thread(batches)
        yield from batches
    except (RuntimeError, EOFError, OSError) as error:  # OSError: of the socket by which a worker hands memory over
        reason = _loss_of_a_worker(_error_of_pinning(batches, error))
        if reason is None:
            raise
        if batches is not None:
            _end(batches)
        raise _WorkersLost(reason) from error


@contextmanager
def _naming_what_cannot_be_sent() -> Iterator[None]:
    """In this context a dataset or a transform that cannot be pickled is one line. Processes get it pickled where they
    do not begin as copies of this one: on macOS, on Windows, and by Python 3.14."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if "pickle" not in str(error):
            raise
        raise BadImages(
            f"the dataset or the transform cannot be sent to the processes that load images ({one_line(error)})",
            f"define it at the top level of a module, or pass {named('workers', '0')}",
        ) from error


def _end(batches: Any) -> None:
    """End the processes of a loader's iterator now: the traceback of an error keeps the iterator, and with it PyTorch's
    watch over its processes. At the death of the next one PyTorch would raise in the middle of any statement."""
    with suppress(RuntimeError):  # that of a process that dies meanwhile
        batches._shutdown_workers()


def _leave_errors_of_pinning_to_this_thread(batches: Any) -> None:
    """With a GPU a thread of PyTorch pins the batches. Where it meets a lost worker first, it would print a traceback,
    and this thread would not learn the reason."""
    thread = getattr(batches, "_pin_memory_thread", None)
    if thread is not None:
        thread._invoke_excepthook = _store_error


def _store_error(thread: Any) -> None:
    thread.error = sys.exc_info()[1]


def _error_of_pinning(batches: Any, error: Exception) -> Exception:
    """The error that ended the thread that pins batches, if this one says that something did; else this one."""
    if not str(error).startswith(PINNING_ENDED):
        return error
    return getattr(batches._pin_memory_thread, "error", error)


def _loss_of_a_worker(error: Exception) -> str | None:
    """Why a worker was lost, if this error tells that one was; None for an error of the images themselves."""
    text = str(error)
    if "shared memory" in text or "resize file" in text:
        reason = one_line(text.rpartition("RuntimeError: ")[2])
        return f"{reason}; in a container make /dev/shm larger"
    if text.startswith(KILLED):
        return one_line(text)
    if isinstance(error, RuntimeError) or "in DataLoader worker process" in text:
        return None
    return one_line(text) or type(error).__name__


def _leave_signals_to_the_parent(worker: int) -> None:
    """Let a worker ignore Ctrl-C and end quietly at SIGTERM: the parent ends its epoch and then its workers.

    It ends at once: a second SIGTERM would interrupt an orderly exit, which then has the status of an error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
