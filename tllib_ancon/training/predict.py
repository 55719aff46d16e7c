"""The predictions of a model on images: classes and probabilities, in Python or in a file with a row an image."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from tllib_ancon.config import STANDARD_OUTPUT, PredictConfig, PredictionsConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.errors import UserError
from tllib_ancon.text import Shown, csv_text, showable
from tllib_ancon.training import devices
from tllib_ancon.training.files import new_file, write_bytes, write_whole
from tllib_ancon.training.predictor import Predictor, names_or_numbers, softmax
from tllib_ancon.training.resolve import Transform


@dataclass(frozen=True, repr=False)
class Predictions(Shown):
    """Predictions on N images.

    Attributes:
        probabilities: (N, K) float32; each row sums to 1
        indices: (N,) int64, position of each image in the input
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

    @property
    def class_prior(self) -> NDArray[np.float32]:
        """(K,) float32, estimated frequency of each class: its fraction of the predicted classes."""
        count, num_classes = self.probabilities.shape
        prior: NDArray[np.float32] = (np.bincount(self.labels, minlength=num_classes) / count).astype(np.float32)
        return prior

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
            :class:`~tllib_ancon.training.adapt.AdaptationResult`. Device and mode are unchanged. Or a checkpoint or run
            directory; or a module beside ``checkpoint``, whose weights a copy of it then has
        images: as for :func:`tllib_ancon.adapt`
        evaluation_transform: item -> tensor (C, H, W), or an image processor of transformers; uint8 tensors reach it
            as PIL images. Default: for images from the run directory or the model's timm, transformers, open_clip or
            torchvision metadata; other tensors are unchanged.
        **settings: of :class:`~tllib_ancon.config.PredictConfig`, such as ``batch_size=64`` or ``views=2``

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)
    """
    config = PredictConfig(**{"quiet": True, **settings})
    with devices.using_processor(config.threads):
        predictor = Predictor(config, model, evaluation_transform)
        domain = predictor.open(images)
        positions = np.asarray(domain.positions, dtype=np.int64)
        return Predictions(softmax(predictor.logits(domain)), positions, domain.paths)


def write_predictions(config: PredictionsConfig) -> dict[str, int]:
    """Predict the classes of images and write a row for each; returns the number of ``rows`` and of ``errors``.

    An image that cannot be read gets a row with its error. CSV and Parquet have names as showable text, CSV with ``'``
    before one that a spreadsheet would run as a formula; NPZ has the paths unchanged.
    """
    with devices.using_processor(config.threads):
        out, predictor = _output(config), Predictor(config)
        domain = predictor.open()
        images = TolerantImages(*predictor.prepare(domain))
        probabilities = softmax(predictor.logits(domain, images))
        unread = np.flatnonzero(np.isnan(probabilities).any(1)).tolist()
        errors = {position: images.error(position) for position in unread}
        table = Table(domain, names_or_numbers(predictor.classes, probabilities.shape[1]), probabilities, errors)
        if out is None:
            try:
                sys.stdout.write(table.csv(config.probabilities))
                sys.stdout.flush()
            except BrokenPipeError:  # the reader has closed the pipe
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            devices.on_main(table.write)(out, config.probabilities)
        return {"rows": len(domain), "errors": len(errors)}


@dataclass(frozen=True)
class Table:
    """Predictions of a domain's images, and why some images could not be read, by position."""

    domain: Domain
    classes: Sequence[str]
    probabilities: NDArray[np.float32]  # (N, K), NaN in the rows of images that could not be read
    errors: Mapping[int, str]

    @property
    def names(self) -> list[str]:
        return list(map(str, self.domain.positions if self.domain.paths is None else self.domain.paths))

    def write(self, out: Path, probabilities: bool) -> None:
        """Write the format of the file's ending, with a column of probabilities a class if wanted."""
        if out.suffix.lower() == ".npz":
            write_whole(out, self._write_npz)
        elif out.suffix.lower() == ".parquet":
            write_whole(out, lambda file: self.frame(probabilities).to_parquet(file, index=False))
        else:
            write_bytes(out, self.csv(probabilities).encode())

    def frame(self, probabilities: bool) -> pandas.DataFrame:
        """A row an image, of text that can be shown; without class and probabilities where it could not be read."""
        best, read = self.probabilities.argmax(1), np.isin(np.arange(len(self.domain)), [*self.errors], invert=True)
        classes = np.array([*map(showable, self.classes)], dtype=object)
        columns: dict[str, Any] = {
            "path": [*map(showable, self.names)],
            "class": np.where(read, classes[best], None),
            "confidence": self.probabilities.max(1),
        }
        if probabilities:
            columns |= {f"probability_{name}": row for name, row in zip(classes, self.probabilities.T, strict=True)}
        errors = [showable(self.errors[row]) if row in self.errors else None for row in range(len(self.domain))]
        return pandas.DataFrame({**columns, "error": pandas.Series(errors, dtype=object)})

    def csv(self, probabilities: bool) -> str:
        frame = self.frame(probabilities).astype(object)
        return csv_text([frame.columns, *frame.where(frame.notna(), None).itertuples(index=False)])

    def _write_npz(self, file: BinaryIO) -> None:
        """``paths``, ``labels`` (-1 if unread), ``probabilities``, ``errors`` and ``classes``."""
        labels = self.probabilities.argmax(1)
        labels[[*self.errors]] = -1
        errors = np.array([self.errors.get(row, "") for row in range(len(self.domain))], dtype=str)
        arrays = {"paths": np.array(self.names), "labels": labels, "probabilities": self.probabilities}
        np.savez_compressed(file, **arrays, errors=errors, classes=np.array(self.classes))


FORMATS = (".csv", ".parquet", ".npz")


def _output(config: PredictionsConfig) -> Path | None:
    """The file to write; None is standard output."""
    if config.out == STANDARD_OUTPUT:
        if devices.launched() > 1:
            raise UserError("`out=-` is for one process; give a file")
        return None
    out = Path(config.out)
    if out.suffix.lower() not in FORMATS:
        raise UserError(
            f"`out={out}`: its ending decides the format; expected {', '.join(FORMATS)}, or - for standard output"
        )
    if out.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        raise UserError("Parquet needs pyarrow; install it: pip install pyarrow")
    return new_file(out, config.overwrite)


class TolerantImages(UnlabelledImages):
    """Items (index, image); (-1 - index, black) for an image that cannot be read."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        try:
            return super().__getitem__(key)
        except UserError:
            if self.domain.holds_tensors:
                raise
            return -1 - key, self.transformed(Image.new("RGB", (64, 64)), key)

    def error(self, key: int) -> str:
        """Why an image has no prediction: it is read once more."""
        try:
            self.domain.image(key)
        except UserError as error:
            return str(error).partition("; `skip_corrupt")[0]
        return "the model's output is not finite"
