"""Predictions on any number of pictures, as a CSV, Parquet or NPZ file; a command that was cut off goes on."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from tllib_ancon.config import STANDARD_OUTPUT, PredictConfig, PredictionsConfig
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.domains import as_domain
from tllib_ancon.data.image_list import read_image_list
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.self_training import processes
from tllib_ancon.training import inputs, launch, pictures, starts
from tllib_ancon.training.files import sha256, sync_folder, write_whole
from tllib_ancon.training.lock import FolderLock
from tllib_ancon.training.passes import device
from tllib_ancon.training.pictures import Transform
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.reproducibility import using_threads

CSV, PARQUET, NPZ = ".csv", ".parquet", ".npz"
FORMATS = (CSV, PARQUET, NPZ)
CHUNK = 4096
"""Pictures whose predictions are kept together: what is lost at most when the command is cut off."""

SETTINGS = "settings.json"
BLACK = (64, 64)
"""Size of the picture that stands for one that cannot be read."""


@dataclass(frozen=True)
class Chunk:
    """Predictions on some of the pictures, in their order.

    Attributes:
        positions: (n,) of the pictures in the domain
        probabilities: (n, K) float32; NaN for a picture that cannot be read
        errors: (n,) why it cannot be read, else an empty text
    """

    positions: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    errors: Sequence[str]


@dataclass(frozen=True)
class Columns:
    """What a row is written with."""

    domain: Domain
    classes: Sequence[str]
    probabilities: bool

    @property
    def header(self) -> list[str]:
        more = [f"probability_{name}" for name in self.classes] if self.probabilities else []
        return ["path", "class", "confidence", *more, "error"]

    @cached_property
    def _paths(self) -> Sequence[str] | None:
        return self.domain.paths

    def path(self, position: int) -> str:
        """The file of a picture, or its number where it is none."""
        return str(int(self.domain.positions[position])) if self._paths is None else self._paths[position]

    def rows(self, chunk: Chunk) -> Iterator[list[Any]]:
        """A row a picture; without class and probabilities where it cannot be read."""
        for position, row, error in zip(chunk.positions, chunk.probabilities, chunk.errors, strict=True):
            path = self.path(int(position))
            if error:
                yield [path, None, None, *([None] * len(row) if self.probabilities else []), error]
            else:
                best = int(row.argmax())
                more = [float(value) for value in row] if self.probabilities else []
                yield [path, self.classes[best], float(row[best]), *more, None]


def write_predictions(config: PredictionsConfig) -> dict[str, int]:
    """Predict the classes of pictures and write a row for each.

    Chunks of the predictions are kept beside the file until all are there; the same command goes on with those that are
    missing. A picture that cannot be read gets a row with its error.

    Args:
        config: which model, which pictures, which file

    Returns: the number of ``rows`` and of ``errors`` among them

    Raises:
        UserError: a model, folder or file that cannot be used (which, why, what to do)
    """
    with using_threads(config.threads):
        return _write(config, _output(config))


def _write(config: PredictionsConfig, out: Path | None) -> dict[str, int]:
    start = starts.find_start(str(config.checkpoint))
    domain = _pictures(config, start.classes)
    settings = starts.inherited(config, start)
    model = starts.start_classifier(settings, start, len(start.classes) if start.classes else None)
    settings = pictures.with_picture_defaults(settings, model.preprocessing)
    transform = pictures.image_transforms(settings, model.preprocessing, domain).evaluation
    columns = Columns(domain, start.classes or numbered(model.num_classes), config.probabilities)
    predictor = _Predictor(model, domain, transform, config)
    if out is None:
        return _to_standard_output(predictor, columns)
    parts = _Parts(out, _fingerprint(settings, start.checkpoint, domain), len(domain))
    launch.on_first(parts.claim)()
    mine = [number for number in parts.missing() if number % processes.world_size() == processes.rank()]
    for number, chunk in predictor.chunks(mine, parts.positions):
        parts.keep(number, chunk)
    launch.collect(None)  # waits for all
    return launch.on_first(parts.assemble)(columns)


def _output(config: PredictionsConfig) -> Path | None:
    """The file to write; None stands for standard output."""
    if config.out == STANDARD_OUTPUT:
        if launch.launched() > 1:
            raise UserError("`out=-` is for one process; give a file")
        return None
    out = Path(config.out)
    if out.suffix.lower() not in FORMATS:
        raise UserError(
            f"`out={out}`: its ending decides the format; expected {', '.join(FORMATS)}, or - for standard output"
        )
    if not out.parent.is_dir():
        raise UserError(f"`out={out}`: the folder {out.parent} does not exist; create it first")
    if out.exists() and not config.overwrite:
        raise UserError(f"{out} exists; pass `overwrite=True` to replace it, or another `out`")
    if out.suffix.lower() == PARQUET:
        _require_pyarrow()
    return out


def _require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UserError("Parquet needs pyarrow; install it: pip install 'tllib-ancon[parquet]'") from None


def _pictures(config: PredictionsConfig, classes: list[str] | None) -> Domain:
    """The pictures of a dataset, of a list or of a folder; nothing is read of their labels."""
    root = Path(str(config.root))
    if config.target:
        return inputs.open_images(config, config.target, split="test", classes=classes).without_labels()
    if config.data is not None and not root.is_file():
        raise UserError("`target` is needed as well: which domain of the dataset; or leave `data` out")
    if root.is_file():
        listed = read_image_list(root, root.parent.parent if root.parent.name == "image_list" else root.parent)
        return Domain.of_files(root.stem, listed.paths)
    return as_domain(str(root), labels=False)


class _Predictor:
    """A model and the pictures that it sees."""

    def __init__(self, model: Classifier, domain: Domain, transform: Transform, config: PredictionsConfig):
        self.model = model.to(device()).eval()
        self.domain = domain
        self.images = TolerantImages(domain, transform)
        self.config = config

    @torch.inference_mode()
    def chunks(self, numbers: Sequence[int], positions: Callable[[int], range]) -> Iterator[tuple[int, Chunk]]:
        """The chunks of these numbers, one after the other, by one set of loading processes."""
        order = [position for number in numbers for position in positions(number)]
        if not order:
            return
        batches = iter(ImageLoader(self.images, self.config.batch_size, self.config.workers, order))
        ready: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        with Progress(self.config.quiet).bar("predicting", len(numbers)) as bar:
            for number in numbers:
                wanted = len(positions(number))
                while sum(len(indices) for indices, _ in ready) < wanted:
                    ready.append(self._batch(*next(batches)))
                indices, values = (np.concatenate(parts) for parts in zip(*ready, strict=True))
                ready = [(indices[wanted:], values[wanted:])]
                yield number, self._chunk(indices[:wanted], values[:wanted])
                bar.update()

    def _batch(self, indices: torch.Tensor, images: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        logits, _ = self.model.predict(images.to(device(), non_blocking=True))
        return indices.numpy(), logits.float().softmax(1).cpu().numpy()

    def _chunk(self, indices: NDArray[np.int64], values: NDArray[np.float32]) -> Chunk:
        unread = indices < 0
        positions = np.where(unread, -1 - indices, indices)
        values = np.where(unread[:, None], np.float32(np.nan), values)
        errors = [self._error(int(position)) if bad else "" for position, bad in zip(positions, unread, strict=True)]
        return Chunk(positions, values, errors)

    def _error(self, position: int) -> str:
        """Why a picture cannot be read: it is read once more."""
        try:
            self.domain.image(position)
        except UserError as error:
            return str(error).partition("; `skip_corrupt")[0]
        return "it could not be read at first"


class TolerantImages(UnlabelledImages):
    """Items (index, image); (-1 - index, black) for an image that cannot be read."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        index = key % len(self)
        try:
            return index, super().image(key)
        except UserError:
            return -1 - index, self.transform(Image.new("RGB", BLACK))

    def image(self, key: int) -> Any:
        return self[key][1]


class _Parts:
    """The chunks of an output file, in a hidden folder beside it until all are there."""

    def __init__(self, out: Path, fingerprint: str, num_images: int):
        self.out = out
        self.folder = out.with_name(f".{out.name}.parts")
        self.fingerprint = fingerprint
        self.num_images = num_images

    def claim(self) -> None:
        """Take the folder for this command; what another one left there is removed.

        Raises:
            UserError: another process writes there, or it cannot be written
        """
        try:
            self.folder.mkdir(exist_ok=True)
            self.lock = FolderLock(self.folder)
            if self._recorded() != self.fingerprint:
                for part in self.folder.glob("*.npz"):
                    part.unlink()
        except OSError as error:
            raise UserError(f"{self.folder} cannot be written ({error.strerror})") from error
        content = json.dumps({"fingerprint": self.fingerprint}).encode()
        write_whole(self.folder / SETTINGS, lambda file: file.write(content))

    def _recorded(self) -> str | None:
        try:
            content = json.loads((self.folder / SETTINGS).read_text())
        except (OSError, ValueError):
            return None
        return content.get("fingerprint") if isinstance(content, dict) else None

    def positions(self, number: int) -> range:
        return range(number * CHUNK, min((number + 1) * CHUNK, self.num_images))

    def missing(self) -> list[int]:
        """Numbers of the chunks that are not there yet."""
        return [number for number in range(-(-self.num_images // CHUNK)) if not self._part(number).is_file()]

    def keep(self, number: int, chunk: Chunk) -> None:
        content = io.BytesIO()
        errors = np.array(chunk.errors, dtype=str)
        np.savez(content, positions=chunk.positions, probabilities=chunk.probabilities, errors=errors)
        write_whole(self._part(number), lambda file: file.write(content.getbuffer()))

    def assemble(self, columns: Columns) -> dict[str, int]:
        """Write the file out of all chunks, and remove them."""
        write = {CSV: _write_csv, PARQUET: _write_parquet, NPZ: _write_npz}[self.out.suffix.lower()]
        counts = {"rows": 0, "errors": 0}

        def chunks() -> Iterator[Chunk]:
            counts.update(rows=0, errors=0)
            for number in range(-(-self.num_images // CHUNK)):
                with np.load(self._part(number), allow_pickle=False) as part:
                    chunk = Chunk(part["positions"], part["probabilities"], part["errors"].tolist())
                counts["rows"] += len(chunk.positions)
                counts["errors"] += sum(map(bool, chunk.errors))
                yield chunk

        whole = self.folder / "whole"
        try:
            with open(whole, "wb") as file:
                write(file, columns, chunks)
                file.flush()
                os.fsync(file.fileno())
            os.replace(whole, self.out)
            sync_folder(self.out.parent)
        except OSError as error:
            raise UserError(f"{self.out} could not be written ({error}); the same command goes on") from error
        self.lock.release()
        shutil.rmtree(self.folder)
        return counts

    def _part(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"


def _fingerprint(config: PredictConfig, checkpoint: str, domain: Domain) -> str:
    digest = sha256(Path(checkpoint)) if Path(checkpoint).is_file() else checkpoint
    settings = {**config.to_dict(), **dict.fromkeys(("out", "overwrite", "quiet", "workers", "probabilities"))}
    text = json.dumps([settings, digest, domain.fingerprint(), CHUNK], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _to_standard_output(predictor: _Predictor, columns: Columns) -> dict[str, int]:
    counts = {"rows": 0, "errors": 0}
    total = len(predictor.domain)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns.header)
    parts = _Parts(Path(STANDARD_OUTPUT), "", total)
    try:
        for _, chunk in predictor.chunks(range(-(-total // CHUNK)), parts.positions):
            writer.writerows(columns.rows(chunk))
            counts["rows"] += len(chunk.positions)
            counts["errors"] += sum(map(bool, chunk.errors))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return counts


Chunks = Callable[[], Iterator[Chunk]]


def _write_csv(file: BinaryIO, columns: Columns, chunks: Chunks) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns.header)
    for chunk in chunks():
        writer.writerows(columns.rows(chunk))
    text.flush()
    text.detach()


def _write_parquet(file: BinaryIO, columns: Columns, chunks: Chunks) -> None:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    kinds = {"path": pyarrow.string(), "class": pyarrow.string(), "error": pyarrow.string()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float32())) for name in columns.header])
    with ParquetWriter(file, schema) as writer:
        for chunk in chunks():
            values = zip(*columns.rows(chunk), strict=True)
            arrays = [pyarrow.array(column, kind) for column, kind in zip(values, schema.types, strict=True)]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def _write_npz(file: BinaryIO, columns: Columns, chunks: Chunks) -> None:
    """``paths``, ``labels`` (-1 where there is none), ``probabilities``, ``errors`` and ``classes``."""
    count, num_classes = len(columns.domain), len(columns.classes)
    paths = max((len(columns.path(position)) for position in range(count)), default=1)
    errors = max((len(error) for chunk in chunks() for error in chunk.errors), default=1)

    def labels(chunk: Chunk) -> NDArray[Any]:
        unread = np.array([bool(error) for error in chunk.errors])
        return np.where(unread, -1, np.nan_to_num(chunk.probabilities).argmax(1))

    members: dict[str, tuple[tuple[int, ...], Any, Callable[[Chunk], Any]]] = {
        "paths": ((count,), f"<U{paths}", lambda chunk: [columns.path(int(position)) for position in chunk.positions]),
        "labels": ((count,), "<i8", labels),
        "probabilities": ((count, num_classes), "<f4", lambda chunk: chunk.probabilities),
        "errors": ((count,), f"<U{max(errors, 1)}", lambda chunk: chunk.errors),
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        for name, (shape, dtype, values) in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": dtype, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(member, header)
                for chunk in chunks():
                    member.write(np.ascontiguousarray(values(chunk), dtype=dtype).tobytes())
        with archive.open("classes.npy", "w") as member:
            np.lib.format.write_array(member, np.array(columns.classes), allow_pickle=False)
