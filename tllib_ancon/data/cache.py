"""Images decoded and resized once, then kept as bytes in memory or in a file: later epochs and runs read those."""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from multiprocessing.heap import BufferWrapper
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.readers import Bytes, Reader
from tllib_ancon.data.transforms import Resizing
from tllib_ancon.runtime.errors import BadImages, named
from tllib_ancon.runtime.notes import Note

_FORMAT = 5


class _ResizedImages:
    """Resized images by their position for a reader. Each is stored when it is first read, in memory that processes
    share or in a file. An image with a wrong checksum is decoded again. Of images that keep their aspect ratio, those
    with one above 2 are decoded each time."""

    def __init__(self, reader: Reader, resizing: Resizing, store: BufferWrapper | Path):
        self.reader = reader
        self.resizing = resizing
        self.store = store
        memory: Any = np.memmap(store, mode="r+") if isinstance(store, Path) else store.create_memoryview()
        self.rows = np.frombuffer(memory, _row(resizing), len(reader))

    def __call__(self, position: int) -> Bytes:
        row = self.rows[position]
        height, width = row["size"].tolist()
        pixels: Bytes = row["pixels"][: height * width * 3]
        if height > 0 and zlib.crc32(pixels.data, height) == row["sum"]:
            return pixels.reshape(height, width, 3)
        image: Any = self.reader.read(position)
        resized = np.array(self.resizing(image))
        if resized.size <= len(row["pixels"]):
            row["pixels"][: resized.size] = resized.reshape(-1)
            row["sum"] = zlib.crc32(resized.data, len(resized))
            row["size"] = resized.shape[:2]  # last: whoever sees it finds the bytes
        return resized

    def __reduce__(self) -> tuple[Any, ...]:
        return _ResizedImages, (self.reader, self.resizing, self.store)


def _row(resizing: Resizing) -> np.dtype[Any]:
    most = resizing.side**2 * 3 * (1 + resizing.keep_ratio)
    return np.dtype([("size", np.uint16, 2), ("sum", np.uint32), ("pixels", np.uint8, most)])


def cached(domain: ImageSource, folder: str | Path, resizings: Iterable[Resizing]) -> ImageSource:
    """The same domain, with its resized images stored in files in ``folder``. A file is named by everything that
    decides its content. Several processes may read and fill it at once."""
    stores: dict[Resizing, Path] = {}
    Path(folder).mkdir(parents=True, exist_ok=True)
    positions = np.unique(domain.positions)
    content = hashlib.sha256(positions.tobytes())
    for key in domain.reader.cache_keys(positions):
        content.update(key + b"\n")
    for resizing in set(resizings):
        digest = content.copy()
        digest.update(json.dumps([_FORMAT, "bicubic", *astuple(resizing), PIL.__version__]).encode())
        file = Path(folder, f"{resizing.side}px-{digest.hexdigest()[:24]}")
        _reserve(file, len(domain.reader) * _row(resizing).itemsize)
        stores[resizing] = file
    return _with_stores(domain, stores)


def _reserve(file: Path, size: int) -> None:
    """Make a file of this size, which another process may have made already."""
    file.touch()
    if file.stat().st_size == size:
        return
    if shutil.disk_usage(file.parent).free < size:
        raise BadImages(
            f"no room for the image cache {file} of {size / 1e9:.2f} GB", f"choose another {named('cache')}"
        )
    os.truncate(file, size)


def cached_in_memory(domain: ImageSource, resizings: Iterable[Resizing], room: int, notes: list[Note]) -> ImageSource:
    """The same domain with its resized images cached in memory, if they fit into ``room`` bytes."""
    sizes = {resizing: len(domain.reader) * _row(resizing).itemsize for resizing in resizings}
    size = sum(sizes.values())
    if size > room:
        text = f"decoded images take {size / 1e9:.1f} GB, more than {room / 1e9:.1f} GB"
        notes.append(Note("cache", text, "cache", f"{named('cache')} keeps them on disk"))
        return domain
    stores = {resizing: BufferWrapper(sizes[resizing]) for resizing in sizes}
    for resizing, store in stores.items():  # which may hold the bytes of an earlier one
        np.frombuffer(store.create_memoryview(), _row(resizing), len(domain.reader))["size"] = 0
    return _with_stores(domain, stores)


def _with_stores(domain: ImageSource, stores: Mapping[Resizing, BufferWrapper | Path]) -> ImageSource:
    images = {resizing: _ResizedImages(domain.reader, resizing, store) for resizing, store in stores.items()}
    return replace(domain, cached=images)
