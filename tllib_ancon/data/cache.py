"""Images decoded and resized once, kept on disk as bytes: what every epoch after the first would do again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from torch.utils.data import DataLoader, Dataset

from tllib_ancon.data.images import load_image
from tllib_ancon.data.resizing import Resizing
from tllib_ancon.errors import UserError

FORMAT = 2
PIXELS, CHECKSUMS = "pixels.npy", "checksums.npy"
Bar = Callable[[str, int], Any]
"""``bar(title, steps)``: a progress bar with ``update()``, as a context."""


class CachedImages:
    """Resized images of one domain, by their paths.

    Calling it with a path gives the bytes (side, side, 3) of the image that decoding and resizing the file would give.
    They are checked at their first use in a process, and mapped from disk, so that workers share one copy in memory.

    Args:
        folder: of one cache, written by :func:`cached_images`
        paths: of its images, in the order of its rows

    Raises:
        UserError: the cache is not whole or holds other images
    """

    def __init__(self, folder: Path, paths: Iterable[str]):
        self.folder = folder
        self.rows = {path: row for row, path in enumerate(paths)}
        self._open()

    def __call__(self, path: str) -> np.ndarray:
        row = self.rows[path]
        pixels = self.pixels[row]
        if not self.checked[row]:
            if zlib.crc32(pixels) != self.checksums[row]:
                raise self._damaged(f"the bytes of {path} changed")
            self.checked[row] = True
        return pixels

    def _open(self) -> None:
        try:
            self.pixels = np.asarray(np.load(self.folder / PIXELS, mmap_mode="r", allow_pickle=False))
            self.checksums = np.load(self.folder / CHECKSUMS, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(str(error)) from error
        count = len(self.rows)
        if self.pixels.dtype != np.uint8 or self.pixels.shape[:1] != (count,) or self.pixels.ndim != 4:
            raise self._damaged(f"{self.pixels.dtype} {self.pixels.shape} instead of {count} images")
        if self.checksums.dtype != np.uint32 or self.checksums.shape != (count,):
            raise self._damaged(f"{self.checksums.shape} checksums instead of {count}")
        self.checked = np.zeros(count, dtype=bool)

    def _damaged(self, reason: str) -> UserError:
        return UserError(f"image cache {self.folder} is damaged ({reason}); delete that folder, and it is made anew")

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "rows": self.rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


def cached_images(folder: str | Path, paths: Iterable[str], resizing: Resizing, workers: int, bar: Bar) -> CachedImages:
    """The images at ``paths``, resized, from the cache in ``folder``; it is written if it is not there.

    A cache is named by everything that decides its content: the paths with the files' times and sizes, the resizing
    and the version of the decoder. It is built in a temporary folder that then takes its name, so two processes may
    build the same one, and one that was interrupted leaves nothing that is taken for a cache.

    Args:
        folder: holds any number of caches
        paths: of the images; repeated ones are kept once
        resizing: to a square
        workers: processes that decode; 0 for this one
        bar: what the person sees while it is built

    Raises:
        UserError: an image that cannot be read; no place on the disk; a damaged cache; a resizing to no square
    """
    if resizing.keep_ratio:
        raise UserError("`cache` keeps squares; choose a resizing that does not keep the aspect ratio")
    side = resizing.side
    unique = list(dict.fromkeys(paths))
    home = Path(folder) / f"{side}px-{_key(unique, side)}"
    if not home.is_dir():
        _build(home, unique, side, workers, bar)
    return CachedImages(home, unique)


def _key(paths: list[str], side: int) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, "bicubic", side, PIL.__version__]).encode())
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            raise UserError(f"image {path}: file not found") from error
        digest.update(f"{path}\0{status.st_mtime_ns}\0{status.st_size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:24]


def _build(home: Path, paths: list[str], side: int, workers: int, bar: Bar) -> None:
    shape = (len(paths), side, side, 3)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    except OSError as error:
        raise UserError(f"image cache {home.parent} cannot be written ({error})") from error
    try:
        _reserve(temporary / PIXELS, shape)
        checksums = _decode_all(temporary / PIXELS, paths, side, workers, bar)
        np.save(temporary / CHECKSUMS, checksums)
        with contextlib.suppress(OSError):  # another process was faster: its cache is the same
            os.rename(temporary, home)
    except OSError as error:
        gigabytes = np.prod(shape) / 1e9
        raise UserError(f"image cache {home} of {gigabytes:.2f} GB cannot be written ({error})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _reserve(path: Path, shape: tuple[int, ...]) -> None:
    """An array of zeros whose place on the disk is taken: a full disk is an error here and not a crash later."""
    np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape).flush()
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _decode_all(pixels: Path, paths: list[str], side: int, workers: int, bar: Bar) -> np.ndarray:
    loader = DataLoader(_Decoding(pixels, paths, side), batch_size=16, num_workers=workers)
    checksums = []
    with bar("caching images", len(loader)) as shown:
        for batch in loader:
            checksums.append(batch.numpy().astype(np.uint32))
            shown.update()
    return np.concatenate(checksums)


class _Decoding(Dataset):
    """Item i writes image i into the array on disk and is the checksum of its bytes."""

    def __init__(self, pixels: Path, paths: list[str], side: int):
        self.pixels = pixels
        self.paths = paths
        self.side = side
        self.array: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> int:
        if self.array is None:
            self.array = np.load(self.pixels, mmap_mode="r+", allow_pickle=False)
        self.array[row] = np.asarray(Resizing(self.side)(load_image(self.paths[row])))
        return zlib.crc32(self.array[row])
