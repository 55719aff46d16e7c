"""What a shell starts: the command on streams that take any character and that may be closed early."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from typing import TextIO

from tllib_ancon.cli import many_processes
from tllib_ancon.cli.main import main


def command() -> int:
    """Run :func:`~tllib_ancon.cli.main.main` for a person at a terminal.

    A character that the terminal's encoding lacks is shown as its code, such as ``\\\\u03bb``. If the reader of a pipe
    has gone, as ``head -1`` does, the command ends without a word.

    Returns: the exit status; 128 plus the number of SIGPIPE if the reader has gone
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    at_exit = many_processes.LastAtExit()
    try:
        try:
            status = main()
        finally:
            sys.stdout.flush()
        if many_processes.started():
            at_exit.status = status
        return status
    except BrokenPipeError:
        if not _reader_has_gone(sys.stdout):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        return 128 + signal.SIGPIPE


def _reader_has_gone(stream: TextIO) -> bool:
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
