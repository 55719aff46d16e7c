"""The predictions of a model on images: classes and probabilities, in Python or in a file with a row an image."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from tllib_ancon.config import STANDARD_OUTPUT, PredictConfig, PredictionsConfig
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.open import SUFFIXES, as_domain, read_image_list
from tllib_ancon.errors import UserError, reading
from tllib_ancon.models.classifier import Classifier, evaluating, logits_of, preprocessing_of, require_network
from tllib_ancon.models.foundation import is_processor, preprocessing_of_processor
from tllib_ancon.self_training import processes
from tllib_ancon.text import Shown, csv_text, showable
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.files import lock_folder, new_file, refuse_links, sha256, write_whole
from tllib_ancon.training.inputs import Transform
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.saved import read_arrays


@dataclass(frozen=True, repr=False)
class Predictions(Shown):
    """Predictions on N images.

    Attributes:
        probabilities: (N, K) float32; each row sums to 1
        indices: (N,) int64, position of each image in what was given
        paths: (N,) files of the images; None where they are no files
    """

    probabilities: NDArray[np.float32]
    indices: NDArray[np.int64]
    paths: Sequence[str] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) int64, the class of the largest probability."""
        labels: NDArray[np.int64] = self.probabilities.argmax(1).astype(np.int64)
        return labels

    def __repr__(self) -> str:
        count, num_classes = self.probabilities.shape
        usual = ", ".join(f"{label} ({times:,})" for label, times in Counter(self.labels.tolist()).most_common(5))
        return (
            f"{count:,} images, {num_classes} classes; most frequent: {usual}; mean confidence "
            f"{self.probabilities.max(1).mean():.2f}"
        )


def predict(
    model: nn.Module | str | Path, images: Any, *, evaluation_transform: Transform | None = None, **settings: Any
) -> Predictions:
    """Predict the classes of images.

    Args:
        model: any module from images (B, C, H, W) to logits (B, K), such as the ``model`` of an
            :class:`~tllib_ancon.training.adapt.AdaptationResult`; it is evaluated where it is, and its mode stays. Or a
            checkpoint or run directory; or a module beside ``checkpoint``, whose weights a copy of it then has
        images: as for :func:`tllib_ancon.adapt`
        evaluation_transform: item -> tensor (C, H, W), or an image processor of transformers; uint8 tensors reach it
            as PIL images. Default: for images that of the model's timm, transformers, open_clip or torchvision
            metadata, or of its run directory; tensors of other types are taken as they come
        **settings: of :class:`~tllib_ancon.config.PredictConfig`, such as ``batch_size=64`` or ``workers=2``

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)
    """
    config = PredictConfig(**{"quiet": True, **settings})
    with devices.using_processor(config.threads):
        network, domain, transform, _ = opened(config, model, images, evaluation_transform)
        loader = ImageLoader(UnlabelledImages(domain, transform), config.batch_size, config.workers)
        rows = np.empty((0, 0), dtype=np.float32)
        with Progress(config.quiet).bar("predicting", len(loader)) as bar:
            for indices, values in probabilities(network, loader):  # into one array: small ones keep batches' memory
                rows = rows if len(rows) else np.empty((len(domain), values.shape[1]), dtype=np.float32)
                rows[indices] = values
                bar.update()
    return Predictions(rows, np.asarray(domain.positions, dtype=np.int64), domain.paths)


def opened(
    config: PredictConfig, model: nn.Module | str | Path | None, images: Any, transform: Transform | None
) -> tuple[nn.Module, Domain, Transform, inputs.TrainedModel | None]:
    """The network that is evaluated, the images without labels, what makes tensors of them, and where the network comes
    from. What is not given is what the configuration names."""
    own, start = None if model is None or isinstance(model, str | Path) else require_network(model), None
    if own is None or config.checkpoint is not None:
        config = config if own is not None or model is None else config.replace(checkpoint=str(model))
        start = inputs.starting_model(config) if own is None else inputs.find_model(str(config.checkpoint), own)
        config = inputs.inherited(config, start)
        own = inputs.load_classifier(config, start).to(devices.device())
    else:
        config.refuse_beside_a_model()
    preprocessing = own.preprocessing if isinstance(own, Classifier) else preprocessing_of(own)
    classes = None if start is None else start.classes
    domain = images_of(config, classes) if images is None else as_domain(images, labels=False, classes=classes)
    if is_processor(transform):
        preprocessing, transform = preprocessing_of_processor(transform), None
    return own, domain, transform or inputs.choose_transforms(config, preprocessing, domain)[1].evaluation, start


@torch.inference_mode()
def probabilities(
    network: nn.Module, batches: Iterable[tuple[torch.Tensor, ...]]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The indices (B,) and the probabilities (B, K) of each batch of (index, image). The network is evaluated where it
    is, and is afterwards in the mode in which it was."""
    weights = next((tensor for tensor in network.parameters() if tensor.is_floating_point()), torch.empty(0))
    with evaluating(network):
        for indices, images in batches:
            images = images.to(weights if images.is_floating_point() else weights.device, non_blocking=True)
            if images.ndim == 4 and images.device.type == "cpu":  # where convolutions are faster in this layout
                images = images.contiguous(memory_format=torch.channels_last)
            logits = logits_of(network, images)
            if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(images):
                raise UserError("the model's output is not one row of logits an image, (B, K)")
            yield indices.numpy(), logits.float().softmax(1).cpu().numpy()


CHUNK = 4096
"""Images whose predictions are kept together: what is lost at most when the command is cut off."""


class Chunk(NamedTuple):
    """Predictions on n images that follow each other in the domain: their probabilities, (n, K) float32, NaN for an
    image that cannot be read; and why it cannot, (n,), else an empty text."""

    probabilities: NDArray[np.float32]
    errors: NDArray[np.str_]


class Table:
    """What is written of a domain's images, which it gives chunk by chunk: their names, the classes of the model,
    whether each class has a column, and once they are written the number of ``errors`` among them."""

    def __init__(self, domain: Domain, classes: Sequence[str], probabilities: bool, chunks: Iterable[Chunk]):
        self.names = map(str, domain.positions) if domain.paths is None else iter(domain.paths)
        self.classes, self.probabilities, self.chunks, self.errors = classes, probabilities, chunks, 0
        more = [f"probability_{showable(name)}" for name in classes] if probabilities else []
        self.header = ["path", "class", "confidence", *more, "error"]

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self.chunks:
            self.errors += int((chunk.errors != "").sum())
            yield chunk

    def rows(self, chunk: Chunk) -> Iterator[list[Any]]:
        """A row for each of the next images, of text that can be shown; without class and probabilities where one
        cannot be read."""
        for row, error, name in zip(*chunk, self.names, strict=False):
            best = int(row.argmax())
            found = [showable(self.classes[best]), float(row[best]), *(map(float, row) if self.probabilities else ())]
            yield [showable(name), *([None] * len(found) if error else found), showable(str(error)) or None]

    def csv(self) -> Iterator[str]:
        yield csv_text([self.header])
        yield from (csv_text(self.rows(chunk)) for chunk in self)


def write_predictions(config: PredictionsConfig) -> dict[str, int]:
    """Predict the classes of images and write a row for each; returns the number of ``rows`` and of ``errors`` among
    them.

    Chunks of the predictions are kept beside the file until all are there; the same command goes on with those that are
    missing. An image that cannot be read gets a row with its error. CSV and Parquet have names as showable text, CSV
    with ``'`` before one that a spreadsheet would take for a formula; NPZ has paths as they are.
    """
    with devices.using_processor(config.threads):
        out = _output(config)
        start = inputs.starting_model(config)
        domain = images_of(config, start.classes)
        settings = inputs.inherited(config, start)
        model = inputs.load_classifier(settings, start)
        settings, transforms = inputs.choose_transforms(settings, model.preprocessing, domain)
        table_of = partial(Table, domain, start.classes or numbered(model.num_classes), config.probabilities)
        images, total = TolerantImages(domain, transforms.evaluation), -(-len(domain) // CHUNK)
        if out is None:
            table = table_of(chunk for _, chunk in _chunks(model, images, config, range(total)))
            try:
                sys.stdout.writelines(table.csv())
                sys.stdout.flush()
            except BrokenPipeError:  # whoever reads has enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return {"rows": len(domain), "errors": table.errors}
        digest = sha256(Path(start.checkpoint).resolve()) if Path(start.checkpoint).is_file() else start.checkpoint
        decides = {**settings.to_dict(), **dict.fromkeys(("out", "overwrite", "quiet", "workers", "probabilities"))}
        text = json.dumps([decides, digest, domain.fingerprint(), CHUNK], default=str)
        parts = _Parts(out, total, hashlib.sha256(text.encode()).hexdigest()[:16])
        devices.on_main(parts.claim)()
        mine = range(processes.rank(), total, processes.world_size())
        missing = [number for number in mine if not parts.files[number].is_file()]
        for number, chunk in _chunks(model, images, config, missing):
            parts.keep(number, chunk)
        devices.collect(None)  # waits for all
        return {"rows": len(domain), "errors": devices.on_main(parts.assemble)(table_of(parts.kept()))}


def _output(config: PredictionsConfig) -> Path | None:
    """The file to write; None stands for standard output."""
    if config.out == STANDARD_OUTPUT:
        if devices.launched() > 1:
            raise UserError("`out=-` is for one process; give a file")
        return None
    out = Path(config.out)
    if out.suffix.lower() not in WRITERS:
        raise UserError(
            f"`out={out}`: its ending decides the format; expected {', '.join(WRITERS)}, or - for standard output"
        )
    if out.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        raise UserError("Parquet needs pyarrow; install it: pip install pyarrow")
    return new_file(out, config.overwrite)


def images_of(config: PredictConfig, classes: list[str] | None) -> Domain:
    """The images of a dataset, of a list or of a folder, or one image; nothing is read of their labels."""
    root = Path(str(config.root))
    if config.target:
        return inputs.open_images(config, config.target, split="test", classes=classes).without_labels()
    if config.data is not None and not root.is_file():
        raise UserError("`target` is needed as well: which domain of the dataset; or leave `data` out")
    if root.is_file() and not root.name.lower().endswith(SUFFIXES):
        paths, _ = read_image_list(root, root.parent.parent if root.parent.name == "image_list" else root.parent)
        return Domain.of_files(root.stem, paths)
    return as_domain(str(root), labels=False)


class TolerantImages(UnlabelledImages):
    """Items (index, image); (-1 - index, black) for an image that cannot be read."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        try:
            return super().__getitem__(key)
        except UserError:
            return -1 - key, self.transformed(Image.new("RGB", (64, 64)), key)

    def error(self, key: int) -> str:
        """Why an image cannot be read: it is read once more."""
        try:
            self.domain.image(key)
        except UserError as error:
            return str(error).partition("; `skip_corrupt")[0]
        return "it could not be read at first"


def _chunks(
    model: nn.Module, images: TolerantImages, config: PredictionsConfig, numbers: Sequence[int]
) -> Iterator[tuple[int, Chunk]]:
    """The chunks of these numbers, one after the other, by one set of loading processes."""
    order: list[int] = []
    loader = ImageLoader(images, config.batch_size, config.workers, order)
    model.to(devices.device())
    with Progress(config.quiet).bar("predicting", len(numbers)) as bar:
        for number in numbers:
            order[:] = range(number * CHUNK, min((number + 1) * CHUNK, len(images)))
            indices, values = map(np.concatenate, zip(*probabilities(model, loader), strict=True))
            values[indices < 0] = np.nan
            errors = [images.error(-1 - index) if index < 0 else "" for index in indices.tolist()]
            yield number, Chunk(values, np.array(errors, dtype=str))
            bar.update()


class _Parts:
    """The chunks of an output file, in a hidden folder beside it until all are there; their names tell which model,
    images and settings they are of."""

    def __init__(self, out: Path, total: int, fingerprint: str):
        self.out, self.folder = out, out.with_name(f".{out.name}.parts")
        self.files = [self.folder / f"{fingerprint}-{number:06d}.npz" for number in range(total)]

    def claim(self) -> None:
        refuse_links(self.folder)
        self.folder.mkdir(exist_ok=True)
        self.lock = lock_folder(self.folder)

    def keep(self, number: int, chunk: Chunk) -> None:
        write_whole(self.files[number], lambda file: np.savez(file, **chunk._asdict()))

    def assemble(self, table: Table) -> int:
        """Write the file out of all chunks, and remove them; returns how many images could not be read."""
        write = WRITERS[self.out.suffix.lower()]
        write_whole(self.out, lambda file: write(file, table))
        self.lock.close()
        shutil.rmtree(self.folder)
        return table.errors

    def kept(self) -> Iterator[Chunk]:
        for path in self.files:
            with reading(path, "predictions"):
                yield Chunk(**read_arrays(path, Chunk._fields))


def _write_csv(file: BinaryIO, table: Table) -> None:
    file.writelines(text.encode() for text in table.csv())


def _write_parquet(file: BinaryIO, table: Table) -> None:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    kinds = {"path": pyarrow.string(), "class": pyarrow.string(), "error": pyarrow.string()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float32())) for name in table.header])
    with ParquetWriter(file, schema) as writer:
        for chunk in table:
            columns = zip(zip(*table.rows(chunk), strict=True), schema.types, strict=True)
            arrays = [pyarrow.array(values, kind) for values, kind in columns]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def _write_npz(file: BinaryIO, table: Table) -> None:
    """``paths``, ``labels`` (-1 where there is none), ``probabilities``, ``errors`` and ``classes``; whoever reads them
    needs as much memory as this."""
    whole = Chunk(*map(np.concatenate, zip(*table, strict=True)))
    np.savez_compressed(
        file,
        paths=np.array(list(table.names)),
        labels=np.where(whole.errors == "", np.nan_to_num(whole.probabilities).argmax(1), -1),
        probabilities=whole.probabilities,
        errors=whole.errors,
        classes=np.array(table.classes),
    )


WRITERS = {".csv": _write_csv, ".parquet": _write_parquet, ".npz": _write_npz}
