"""Files that are whole or absent whenever a process stops, and folders in which one process writes at a time."""

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import numpy.typing as npt

from tllib_ancon.runtime.errors import REPAIR, BadFile, BadSetting, named, reading
from tllib_ancon.runtime.types import Record

try:
    import fcntl
except ImportError:  # Windows has no record locks: there, nothing is locked
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
"""The file that is locked."""

PARTIAL = ".partial"
"""The ending of a file that is being written."""

Array = npt.NDArray[Any]


def new_file(out: str | Path, overwrite: bool = True, setting: str = "out", formats: Sequence[str] = ()) -> Path:
    """The path of a file that can be written, with one of these endings; an error names the setting that asks for
    it."""
    path = Path(out)
    if formats and path.suffix.lower() not in formats:
        raise BadSetting(
            f"{named(setting, out)}: its ending decides the format",
            f"expected {' or '.join(formats)}",
            setting=setting,
        )
    if not path.parent.is_dir():
        raise BadSetting(
            f"{named(setting, out)}: the folder {path.parent} does not exist", "create it first", setting=setting
        )
    if path.exists() and not overwrite:
        raise BadFile(f"{out} exists", f"pass {named('overwrite', True)} to replace it, or another {named(setting)}")
    return path


def read_json(path: Path, advice: str = REPAIR) -> Record:
    """The object in a file of JSON."""
    with reading(path, "JSON", advice):
        return dict(json.loads(path.read_bytes()))


def read_arrays(path: Path) -> dict[str, Array]:
    with reading(path, "arrays"), np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside its place and rename it, so that its name holds the whole old or the whole new content."""
    temporary = path.with_name(path.name + PARTIAL)
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error.__context__ or error  # torch.save hides a full disk
        raise BadFile(
            f"{path} could not be written ({reason})",
            "its content before stays. Make room or check the folder's permissions, then give the same command again",
        ) from error


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    write_whole(path, lambda file: file.write(content))


def write_json(path: Path, content: Record) -> None:
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write the arrays of these names; None is left out."""
    defined: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    write_whole(path, lambda file: np.savez_compressed(file, **defined))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def lock_folder(folder: Path) -> TextIO:
    """Keep other processes from writing in an existing folder, until the returned file is closed. Data-loader workers,
    which may outlive a killed run, do not inherit a POSIX record lock, unlike filelock's. A file system without locks
    keeps nobody out."""
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
    except OSError:
        pass
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}")
    file.flush()
    return file
