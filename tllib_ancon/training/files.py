"""Files that are whole or absent, whenever the process or the machine stops."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from tllib_ancon.errors import UserError

PARTIAL = ".partial"
"""Ending of a file that is being written."""


class HashingFile:
    """A file that is written from front to back, with the SHA-256 of what it got and its first error."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        try:
            written = self.file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise
        self.sha256.update(data)
        return written

    def flush(self) -> None:
        self.file.flush()


def write_whole(path: Path, write: Callable[[HashingFile], object]) -> str:
    """Write a file so that its name always stands for the whole old or the whole new content.

    The content goes to ``<path>.partial``, which reaches the disk and then takes the name; the folder reaches the disk
    too. Returns the SHA-256 of the content.

    Raises:
        UserError: it could not be written (why: no space, no permission); the old file is kept
    """
    temporary = path.with_name(path.name + PARTIAL)
    hashing: HashingFile | None = None
    try:
        with open(temporary, "wb") as file:
            hashing = HashingFile(file)
            write(hashing)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except (OSError, RuntimeError) as error:  # torch.save hides the OSError of a full disk behind a RuntimeError
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = hashing.error if hashing is not None and hashing.error is not None else error
        raise UserError(
            f"{path} could not be written ({reason}); what it held before is kept. Make room or check the folder's "
            "permissions, then give the same command again"
        ) from error
    return hashing.sha256.hexdigest()


def write_bytes(path: Path, content: bytes) -> str:
    """Write this content as :func:`write_whole` does; returns the SHA-256."""
    return write_whole(path, lambda file: file.write(content))


def copy_whole(source: Path, path: Path) -> str:
    """Copy a file as :func:`write_whole` writes one; returns the SHA-256."""

    def copy(file: HashingFile) -> None:
        with open(source, "rb") as original:
            while block := original.read(2**20):
                file.write(block)

    return write_whole(path, copy)


def sync_folder(folder: Path) -> None:
    """Make renames within ``folder`` reach the disk, where the system lets a folder be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def sha256_of_tensors(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names and the bytes of tensors, whatever device they are on."""
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
