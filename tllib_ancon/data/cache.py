"""Images decoded and resized once, kept as bytes on disk or in memory: what every epoch after the first would do
again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import astuple, replace
from functools import partial
from multiprocessing.heap import BufferWrapper
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from filelock import FileLock, Timeout

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Bytes, Items, Positions
from tllib_ancon.data.loading import read_each
from tllib_ancon.data.transforms import Resizing
from tllib_ancon.errors import UserError, reading
from tllib_ancon.interruption import sigterm_raises

FORMAT = 3
NOTABLE = 10**8
"""Bytes of memory from which on a line says that they are taken."""

PIXELS, INDEX = "pixels.bin", "index.npy"
DELETE = "; delete that folder, and it is made anew"

Bar = Callable[[str, int], Any]
"""``bar(title, steps)``: a progress bar with ``update()``, as a context."""


class ResizedImages:
    """Resized images as bytes (H, W, 3), by position among the sorted ``positions``. They are mapped from disk, so that
    workers share one copy, and verified at their first use in a process."""

    def __init__(self, folder: Path, positions: Positions):
        self.folder, self.positions = folder, positions
        with reading(folder, "an image cache", DELETE):
            self.index = np.load(folder / INDEX, allow_pickle=False)  # (N, 3): height, width, checksum
            self.pixels = np.asarray(np.memmap(folder / PIXELS, mode="c"))
            self.offsets = np.append(0, np.cumsum(self.index[:, 0] * self.index[:, 1] * 3))
            kind, size = (self.index.dtype, self.index.shape), len(self.pixels)
            if kind != (np.int64, (len(positions), 3)) or size != self.offsets[-1]:
                raise ValueError(f"it is not whole, or not of {len(positions)} images")
        self.checked = np.zeros(len(positions), dtype=bool)

    def __call__(self, position: int) -> Bytes:
        row = int(np.searchsorted(self.positions, position))
        height, width, checksum = self.index[row].tolist()
        pixels = self.pixels[self.offsets[row] : self.offsets[row + 1]]
        if not self.checked[row]:
            if zlib.crc32(pixels.data) != checksum:
                raise UserError(f"image cache {self.folder} is damaged (the bytes of image {position} changed){DELETE}")
            self.checked[row] = True
        return pixels.reshape(height, width, 3)

    def __reduce__(self) -> tuple[Any, ...]:
        return ResizedImages, (self.folder, self.positions)


def cached(domain: Domain, folder: str | Path, resizings: Iterable[Resizing], workers: int, bar: Bar) -> Domain:
    """The same domain, with its resized images read from caches in ``folder``; missing caches are written.

    A cache is named by everything that decides its content: the files' paths, inodes, times and sizes, the resizing and
    the version of the decoder. It is built aside and renamed when complete. The next build removes leftovers of a
    killed process. Of several processes that want the same one, the first builds it and the others wait.
    """
    positions = np.unique(domain.positions)
    images = copy(domain.images)
    images.kept = kept = dict(images.kept)
    for resizing in set(resizings):
        name = json.dumps([FORMAT, "bicubic", *astuple(resizing), PIL.__version__]).encode()
        digest = hashlib.sha256(name)
        for state in domain.images.states(positions):
            digest.update(state + b"\n")
        home = Path(folder) / f"{resizing.side}px-{digest.hexdigest()[:24]}"
        if not home.is_dir():
            _build(home, replace(domain, positions=positions, labels=None), resizing, workers, bar)
        kept[resizing] = ResizedImages(home, positions)
    return replace(domain, images=images)


class ImagesInMemory:
    """Resized images, each kept once it was asked for, in memory that loading processes share and that goes with the
    last of them: a position among the ``domain``'s, which are sorted, gives the bytes (H, W, 3) that decoding and
    resizing give. Of images that keep their aspect ratio, those with one above 2 are decoded each time."""

    def __init__(self, domain: Domain, resizing: Resizing, memory: BufferWrapper | None = None):
        self.domain, self.resizing, kind = domain, resizing, _row(resizing)
        self.memory = memory or BufferWrapper(len(domain) * kind.itemsize)
        rows = np.frombuffer(self.memory.create_memoryview(), kind, len(domain))
        self.sizes, self.pixels = rows["size"], rows["pixels"]
        if memory is None:
            self.sizes[:] = 0

    def __call__(self, position: int) -> Bytes:
        index = int(np.searchsorted(self.domain.positions, position))
        (height, width), place = self.sizes[index].tolist(), self.pixels[index]
        if height:
            kept: Bytes = place[: height * width * 3].reshape(height, width, 3)
            return kept
        pixels = _resized(self.domain, self.resizing, index)
        if pixels.size <= place.size:
            place[: pixels.size] = pixels.reshape(-1)
            self.sizes[index] = pixels.shape[:2]  # last: whoever sees it finds the bytes
        return pixels

    def __reduce__(self) -> tuple[Any, ...]:
        return ImagesInMemory, (self.domain, self.resizing, self.memory)


def _row(resizing: Resizing) -> np.dtype[Any]:
    return np.dtype([("size", np.int32, 2), ("pixels", np.uint8, resizing.side**2 * 3 * (1 + resizing.keep_ratio))])


def kept_in_memory(domain: Domain, resizings: Iterable[Resizing], room: int, say: Callable[[str], None]) -> Domain:
    """The same domain with its resized images cached in memory, if they fit into ``room`` bytes. A line reports much
    memory or a lack of room. Items of a dataset may be random, and in memory already."""
    chosen = set(resizings)
    size = len(domain) * sum(_row(resizing).itemsize for resizing in chosen)
    if isinstance(domain.images, Items):
        return domain
    if size > min(room, NOTABLE):
        kept = "stay in memory" if size <= room else "are not kept in memory; `cache` keeps them on disk"
        say(f"decoded images take up to {size / 1e9:.1f} GB of the {room / 1e9:.1f} GB that they may, and {kept}")
    if size > room:
        return domain
    unique, images = replace(domain, positions=np.unique(domain.positions), labels=None), copy(domain.images)
    images.kept = {resizing: ImagesInMemory(unique, resizing) for resizing in chosen}
    return replace(domain, images=images)


def _build(home: Path, domain: Domain, resizing: Resizing, workers: int, bar: Bar) -> None:
    gigabytes = len(domain) * resizing.side**2 * 3 / 1e9
    home.parent.mkdir(parents=True, exist_ok=True)
    for left in filter(Path.is_dir, home.parent.glob(".*px-*")):  # by dead processes
        with contextlib.suppress(Timeout), FileLock(f"{left}.lock", timeout=0):
            shutil.rmtree(left, ignore_errors=True)
    aside = home.with_name(f".{home.name}")
    with FileLock(f"{aside}.lock"), sigterm_raises("while images were cached"), contextlib.ExitStack() as done:
        if home.is_dir():  # another process was faster
            return
        done.callback(shutil.rmtree, aside, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        if shutil.disk_usage(aside).free < gigabytes * 1e9:
            raise UserError(f"no room for the image cache {home} of {gigabytes:.2f} GB; choose another `cache`")
        rows = []
        with open(aside / PIXELS, "wb") as file, bar("caching images", len(domain)) as shown:
            for pixels in read_each(partial(_resized, domain, resizing), len(domain), workers):
                file.write(pixels)
                rows.append((*pixels.shape[:2], zlib.crc32(pixels)))
                shown.update()
        np.save(aside / INDEX, np.array(rows, dtype=np.int64))
        os.rename(aside, home)


def _resized(domain: Domain, resizing: Resizing, index: int) -> Bytes:
    image: Any = domain.image(index)
    return np.array(resizing(image))
