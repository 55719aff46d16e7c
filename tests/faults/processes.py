"""Commands in processes of their own, which a signal or a limit may end, and in which a bug may be planted."""

import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from tests.faults.commands import BY_LAUNCHER, Place

LONGEST = 600.0
"""Seconds after which a command counts as one that hangs."""

LONGEST_GOODBYE = 240.0
"""Seconds in which the other processes of a command that ended must end, too."""

SAID, ERROR = "tllib-ancon: ", "tllib-ancon: error: "


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: exit status; -N by signal N
        errors: what it wrote to standard error
        seconds: how long it took
        left: whether a process of its group lived on
        hit: whether the kill came before the end
    """

    status: int
    errors: str
    seconds: float
    left: bool
    hit: bool = False

    @property
    def in_one_line(self) -> bool:
        """Whether it says in one line what was wrong; notes may come before."""
        lines = self.errors.splitlines()
        return all(line.startswith(SAID) for line in lines) and sum(ERROR in line for line in lines) <= 1

    def record(self, right: bool) -> dict[str, object]:
        """What is kept of it, and of its words if they were not right."""
        wrong = "" if right else f"{self.status}: {self.errors}"
        return {"status": self.status, "wrong_exit": wrong, "left": self.left}


@dataclass(frozen=True)
class Kill:
    """A signal to the process or to its whole group, after so many seconds, or where it writes for the so-many-th
    time, from 1."""

    number: signal.Signals
    group: bool
    after: float = 0.0
    write: int = 0


def run(words: Sequence[str], place: Place, kill: Kill | None = None, largest_file: int | None = None) -> Ended:
    """Run ``tllib-ancon WORDS`` to its end, or ``python WORDS`` if they begin with ``-m``.

    Commands are forked from this process, which has imported what is slow; what they write is listed in
    ``place.writes``. A launcher is started from nothing and not watched.

    Args:
        kill: a signal that may come before the end
        largest_file: bytes beyond which no file can grow
    """
    place.writes.write_bytes(b"")
    read, write = os.pipe()
    started = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _be(words, place, kill, write, largest_file)
    os.close(write)
    try:
        return _followed(pid, read, kill, started)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.close(read)


def _followed(pid: int, read: int, kill: Kill | None, started: float) -> Ended:
    os.set_blocking(read, False)
    errors, status, hit = b"", None, False
    while status is None:
        seconds = time.perf_counter() - started
        if kill and not kill.write and not hit and seconds >= kill.after:
            (os.killpg if kill.group and os.getpgid(pid) == pid else os.kill)(pid, kill.number)
            hit = True
        if seconds > LONGEST:
            os.kill(pid, signal.SIGKILL)
        errors += _available(read)
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
        time.sleep(0.005)
    seconds = time.perf_counter() - started
    while (left := _lives(pid)) and time.perf_counter() - started < seconds + LONGEST_GOODBYE:
        time.sleep(0.05)
    hit = hit or bool(kill and kill.write and status in (-kill.number, 128 + kill.number))
    return Ended(status, (errors + _available(read)).decode(errors="replace"), seconds, left, hit)


def _available(read: int) -> bytes:
    with suppress(BlockingIOError):
        return os.read(read, 2**16)
    return b""


def _lives(group: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def _be(words: Sequence[str], place: Place, kill: Kill | None, errors: int, largest_file: int | None) -> NoReturn:
    """Become the command, in this forked process."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background commands inherit SIGINT as ignored
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors, 2)
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
        if words[0] == BY_LAUNCHER:
            os.environ["OMP_NUM_THREADS"] = "1"
            os.execv(sys.executable, [sys.executable, *words])
        from tllib_ancon.cli.main import main

        multiprocessing.set_start_method("fork", force=True)
        torch.set_num_threads(1)
        PLANTED.get(place.planted, lambda: None)()
        _watch(place, kill)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        status = main(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _watch(place: Place, kill: Kill | None) -> None:
    """List where this process writes below its folder, a line each, and send it the kill there: when it has opened a
    file to write, which is empty then, and before and after it renames one."""
    own, log = os.getpid(), os.open(place.writes, os.O_WRONLY)
    count = 0

    def reach(line: str, do: Callable[[], object] = lambda: None) -> None:
        nonlocal count
        count += 1
        os.write(log, f"{line}\n".encode())
        if kill and kill.write == count:
            if kill.number == signal.SIGKILL:  # after another signal the command does it
                do()
            (os.killpg if kill.group else os.kill)(own, kill.number)

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not (opened or event == "os.rename") or os.getpid() != own:
            return
        path = arguments[0 if opened else 1]
        if not isinstance(path, str | Path) or not Path(path).is_relative_to(place.work):
            return
        name = Path(path).relative_to(place.work)
        if opened:
            reach(f"opened {name}", lambda: os.open(path, arguments[2], 0o666))
        else:
            reach(f"before {name}")
            reach(f"after {name}", lambda: os.rename(*arguments[:2]))

    sys.addaudithook(see)


def _written_in_place() -> None:
    def replace(source: Path, path: Path) -> None:
        shutil.copyfile(source, path)
        os.unlink(source)

    os.replace = replace  # type: ignore[assignment]


def _named_before_written() -> None:
    rename = os.replace

    def replace(source: Path, path: Path) -> None:
        content = Path(source).read_bytes()
        Path(source).write_bytes(b"")
        rename(source, path)
        Path(path).write_bytes(content)

    os.replace = replace  # type: ignore[assignment]


def _forgotten_momentum() -> None:
    whole = torch.optim.SGD.state_dict
    torch.optim.SGD.state_dict = lambda self: {**whole(self), "state": {}}  # type: ignore[method-assign]


PLANTED = {
    "written under its own name": _written_in_place,
    "named before it is written": _named_before_written,
    "a snapshot without momentum": _forgotten_momentum,
}
"""Bugs that a campaign must find: it is blind where it does not."""
