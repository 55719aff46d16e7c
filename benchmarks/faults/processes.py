"""Commands in processes of their own, which a signal or a limit may end."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch

LONGEST = 300.0
"""Seconds after which a command counts as one that hangs."""

SAID, ERROR = "tllib-ancon: ", "tllib-ancon: error: "
LOOK_EVERY = 0.005
MOST_ERRORS = 2**16


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: exit status; -N by signal N
        errors: what it wrote to standard error
        seconds: how long it took
        left: whether a process of its group lived on
    """

    status: int
    errors: str
    seconds: float
    left: bool

    @property
    def in_one_line(self) -> bool:
        """Whether it says in one line what was wrong; notes may come before."""
        lines = self.errors.splitlines()
        return all(line.startswith(SAID) for line in lines) and sum(ERROR in line for line in lines) <= 1


@dataclass(frozen=True)
class Kill:
    """A signal after so many seconds, to the process or to its whole group."""

    after: float
    number: signal.Signals
    group: bool


def run(words: Sequence[str], kill: Kill | None = None, largest_file: int | None = None) -> Ended:
    """Run ``tllib-ancon WORDS`` to its end, or ``python WORDS`` if they begin with ``-m``.

    Commands are forked from this process, which has imported what is slow; a launcher is started from nothing.

    Args:
        kill: a signal that may come before the end
        largest_file: bytes beyond which no file can grow
    """
    read, write = os.pipe()
    started = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _be(words, write, largest_file)
    os.close(write)
    try:
        return _followed(pid, read, kill, started)
    finally:
        _end_group(pid)
        os.close(read)


def _followed(pid: int, read: int, kill: Kill | None, started: float) -> Ended:
    os.set_blocking(read, False)
    errors, status = b"", None
    while status is None:
        seconds = time.perf_counter() - started
        if kill is not None and seconds >= kill.after:
            (os.killpg if kill.group and os.getpgid(pid) == pid else os.kill)(pid, kill.number)
            kill = None
        if seconds > LONGEST:
            os.kill(pid, signal.SIGKILL)
        errors += _available(read)
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
        time.sleep(LOOK_EVERY)
    seconds = time.perf_counter() - started
    left = not _within(3.0, lambda: not _lives(pid))
    return Ended(status, (errors + _available(read)).decode(errors="replace"), seconds, left)


def _be(words: Sequence[str], errors: int, largest_file: int | None) -> NoReturn:
    """Become the command, in this forked process."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors, 2)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    if words[0] == "-m":
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *words])
    from tllib_ancon.cli.main import main

    multiprocessing.set_start_method("fork", force=True)
    torch.set_num_threads(1)
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _available(read: int) -> bytes:
    try:
        return os.read(read, MOST_ERRORS)
    except BlockingIOError:
        return b""


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _end_group(group: int) -> None:
    if _lives(group):
        os.killpg(group, signal.SIGKILL)


def _within(seconds: float, happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
