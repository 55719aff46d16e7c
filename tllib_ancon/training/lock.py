"""One process at a time writes to a folder."""

from __future__ import annotations

import errno
import os
import platform
import warnings
from pathlib import Path

from tllib_ancon.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has no record locks: there, nothing is locked
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


class FolderLock:
    """A lock that the operating system takes back when the process that holds it ends, however it ends.

    It is a POSIX record lock on ``<folder>/.lock``: data-loader workers do not inherit it, and it works over NFS. The
    file says who holds or last held it.

    Args:
        folder: an existing folder

    Raises:
        UserError: another process that lives holds the lock (which)
    """

    def __init__(self, folder: Path):
        self.file = open(folder / LOCK, "a+")  # noqa: SIM115 (held until release)
        if fcntl is None:
            return
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                self.file.seek(0)
                holder = self.file.read().strip()
                self.file.close()
                raise UserError(
                    f"{folder} is in use: {holder or 'another process'} is writing there; wait for it, end it, or "
                    "choose another folder"
                ) from None
            warnings.warn(f"{folder} cannot be locked ({error}): let no two processes write there", stacklevel=2)
        self.file.truncate(0)
        self.file.write(f"process {os.getpid()} on {platform.node()}")
        self.file.flush()

    def release(self) -> None:
        self.file.close()
