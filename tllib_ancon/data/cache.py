"""Images decoded and resized once, kept on disk as bytes: what every epoch after the first would do again."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, replace
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.pictures import Positions
from tllib_ancon.data.resizing import Resizing
from tllib_ancon.data.worker_pool import live_as_parent_does, started
from tllib_ancon.errors import Interrupted, UserError

try:
    import fcntl
except ImportError:  # Windows: what a killed build leaves stays there
    fcntl = None  # type: ignore[assignment]

FORMAT = 3
PIXELS, INDEX, LOCK = "pixels.bin", "index.npy", "lock"
HEIGHT, WIDTH, CHECKSUM = range(3)
"""Columns of the index; an image has three bytes a pixel."""

Bar = Callable[[str, int], Any]
"""``bar(title, steps)``: a progress bar with ``update()``, as a context."""


class CachedImages:
    """Resized images by their positions.

    Calling it with a position gives the bytes (H, W, 3) of the image that decoding and resizing would give. They are
    checked at their first use in a process, and mapped from disk, so that workers share one copy in memory.

    Args:
        folder: of one cache
        positions: sorted, of the images in its rows

    Raises:
        UserError: the cache is not whole or holds other images
    """

    def __init__(self, folder: Path, positions: Positions):
        self.folder = folder
        self.positions = positions
        self._open()

    def __call__(self, position: int) -> NDArray[np.uint8]:
        row = int(np.searchsorted(self.positions, position))
        height, width, checksum = self.index[row].tolist()
        pixels = self.pixels[self.offsets[row] : self.offsets[row + 1]]
        if not self.checked[row]:
            if zlib.crc32(pixels.data) != checksum:
                raise self._damaged(f"the bytes of image {position} changed")
            self.checked[row] = True
        return pixels.reshape(height, width, 3)

    def _open(self) -> None:
        try:
            self.index = np.load(self.folder / INDEX, allow_pickle=False)
            self.pixels = np.asarray(np.memmap(self.folder / PIXELS, mode="r"))
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(str(error)) from error
        count = len(self.positions)
        if self.index.dtype != np.int64 or self.index.shape != (count, 3) or (self.index < 0).any():
            raise self._damaged(f"an index of {self.index.dtype} {self.index.shape} instead of {count} images")
        self.offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(self.index[:, HEIGHT] * self.index[:, WIDTH] * 3, out=self.offsets[1:])
        if len(self.pixels) != self.offsets[-1]:
            raise self._damaged(f"{len(self.pixels)} bytes instead of {self.offsets[-1]}")
        self.checked = np.zeros(count, dtype=bool)

    def _damaged(self, reason: str) -> UserError:
        return UserError(f"image cache {self.folder} is damaged ({reason}); delete that folder, and it is made anew")

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "positions": self.positions}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def cached(domain: Domain, folder: str | Path, resizings: Iterable[Resizing], workers: int, bar: Bar) -> Domain:
    """The same domain, with its resized images read from caches in ``folder``; those that are not there are written.

    A cache is named by everything that decides its content: the files' paths, inodes, times and sizes, the resizing and
    the version of the decoder. It is built in a temporary folder that then takes its name, so two processes may
    build the same one, and one that was interrupted leaves nothing that is taken for a cache. What a killed process
    left is removed by the next one that builds.

    Args:
        domain: of files or of a Hugging Face dataset
        folder: holds any number of caches
        resizings: of the transforms that will read the images
        workers: processes that decode; 0 for this one
        bar: what the person sees while it is built

    Raises:
        UserError: an image that cannot be read; no place on the disk; a damaged cache; images that no cache can keep
        Interrupted: SIGTERM came while it was built
    """
    positions = np.unique(domain.positions)
    caches = dict(domain.caches)
    for resizing in set(resizings):
        home = Path(folder) / f"{resizing.side}px-{_key(domain, positions, resizing)}"
        if not home.is_dir():
            _build(home, replace(domain, positions=positions, labels=None, caches={}), resizing, workers, bar)
        caches[resizing] = CachedImages(home, positions)
    return replace(domain, caches=caches)


def _key(domain: Domain, positions: Positions, resizing: Resizing) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, "bicubic", *astuple(resizing), PIL.__version__]).encode())
    for state in domain.pictures.states(positions):
        digest.update(state + b"\n")
    return digest.hexdigest()[:24]


def _build(home: Path, domain: Domain, resizing: Resizing, workers: int, bar: Bar) -> None:
    gigabytes = len(domain) * resizing.side**2 * 3 / 1e9
    with _temporary(home) as temporary, _sigterm_raises():
        try:
            if shutil.disk_usage(temporary).free < gigabytes * 1e9:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with open(temporary / PIXELS, "wb") as file:
                index = _decode_all(file, domain, resizing, workers, bar)
            np.save(temporary / INDEX, index)
            with contextlib.suppress(OSError):  # another process was faster: its cache is the same
                os.rename(temporary, home)
        except OSError as error:
            raise UserError(f"image cache {home} of {gigabytes:.2f} GB cannot be written ({error})") from error


@contextlib.contextmanager
def _temporary(home: Path) -> Iterator[Path]:
    """A locked folder beside ``home``, removed in the end; and those that dead processes left are removed first."""
    with contextlib.ExitStack() as held:
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            with _locked(home.parent / f".{LOCK}", wait=True):
                _remove_dead(home.parent)
                temporary = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
                held.callback(shutil.rmtree, temporary, ignore_errors=True)
                held.enter_context(_locked(temporary / LOCK, wait=False))
        except OSError as error:
            raise UserError(f"image cache {home.parent} cannot be written ({error})") from error
        yield temporary


def _remove_dead(folder: Path) -> None:
    for left in folder.glob(".*px-*"):
        with contextlib.suppress(OSError), _locked(left / LOCK, wait=False):
            shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """A lock that the operating system takes back when its process ends.

    Raises:
        OSError: another process has it, unless this one is to ``wait``
    """
    with open(path, "ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    """In this context SIGTERM is an exception, so that what was begun is removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number, "while images were cached")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _decode_all(file: BinaryIO, domain: Domain, resizing: Resizing, workers: int, bar: Bar) -> NDArray[np.int64]:
    loader = DataLoader(
        _Resized(domain, resizing),
        batch_size=16,
        num_workers=workers,
        collate_fn=list,
        worker_init_fn=live_as_parent_does,
    )
    rows = []
    with bar("caching images", len(loader)) as shown:
        for batch in started(loader):
            for pixels in batch:
                file.write(pixels)
                rows.append((*pixels.shape[:2], zlib.crc32(pixels)))
            shown.update()
    return np.array(rows, dtype=np.int64)


class _Resized(Dataset[NDArray[np.uint8]]):
    """Item i is image i of a domain, resized."""

    def __init__(self, domain: Domain, resizing: Resizing):
        self.domain = domain
        self.resizing = resizing

    def __len__(self) -> int:
        return len(self.domain)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        picture = self.domain.image(index)
        assert isinstance(picture, Image.Image)
        return np.asarray(self.resizing(picture))
