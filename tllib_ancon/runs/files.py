"""Files that are whole or absent whenever a process stops, and folders in which one process writes at a time."""

import contextlib
import hashlib
import json
import os
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from tllib_ancon.runtime.errors import REPAIR, BadFile, BadSetting, named, one_line, reading
from tllib_ancon.runtime.types import Record

try:
    import fcntl
except ImportError:  # Windows has no record locks: there, nothing is locked
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
"""The file that is locked."""

PARTIAL = ".partial"
"""The ending of a file that is being written."""


def new_file(out: str | Path, overwrite: bool = True, setting: str = "out") -> Path:
    """The path of a file that can be written; an error names the setting that asks for it."""
    path = Path(out)
    if not path.parent.is_dir():
        raise BadSetting(
            f"{named(setting, out)}: the folder {path.parent} does not exist", "create it first", setting=setting
        )
    if path.exists() and not overwrite:
        raise BadFile(f"{out} exists", f"pass {named('overwrite', True)} to replace it, or another {named(setting)}")
    return path


def read_json(path: Path, line: bytes | None = None, advice: str = REPAIR) -> Record:
    """The object in a file of JSON, or in one ``line`` of the file."""
    with reading(path, "JSON", advice):
        text = path.read_bytes() if line is None else line
        content = json.loads(text)
    if not isinstance(content, dict):
        raise BadFile(f"{path} must hold names with values, not {one_line(content)!r}", advice)
    return content


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside its place and rename it, so that its name holds the whole old or the whole new content."""
    temporary = path.with_name(path.name + PARTIAL)
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _flush_folder(path.parent)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason: BaseException = error
        if isinstance(error.__context__, OSError):  # torch.save hides a full disk
            reason = error.__context__
        raise BadFile(
            f"{path} could not be written ({reason})",
            "its content before stays. Make room or check the folder's permissions, then give the same command again",
        ) from error


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere no folder can be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    write_whole(path, lambda file: file.write(content))


def write_json(path: Path, content: Record, **options: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=2, **options) + "\n").encode())


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(2**20), b""):
            digest.update(block)
    return digest.hexdigest()


def lock_folder(folder: Path) -> TextIO:
    """Keep other processes from writing in an existing folder, until the returned file is closed. Data-loader workers,
    which may outlive a killed run, do not inherit a POSIX record lock, unlike filelock's."""
    file = open(folder / LOCK, "a+")  # noqa: SIM115 (held until it is closed)
    try:
        if fcntl is not None:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        with file:
            file.seek(0)
            holder = file.read().strip() or "another process"
        raise BadFile(
            f"{folder} is in use: {holder} is writing there", "wait for it, end it, or choose another folder"
        ) from None
    except OSError as error:
        warnings.warn(f"{folder} cannot be locked ({error}): let no two processes write there", stacklevel=2)
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}")
    file.flush()
    return file
