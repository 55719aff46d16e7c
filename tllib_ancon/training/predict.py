"""The predictions of a model on images: classes and probabilities, in Python or in a file with a row an image."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from tllib_ancon.config.predict import STANDARD_OUTPUT, PredictConfig, PredictionsConfig
from tllib_ancon.data.domain import numbered
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import Shown, csv_text, showable
from tllib_ancon.training import devices
from tllib_ancon.training.class_names import ModelClasses
from tllib_ancon.training.files import new_file, write_bytes, write_whole
from tllib_ancon.training.not_finite import predicted_classes
from tllib_ancon.training.predictor import Predictor
from tllib_ancon.training.resolve import Transform


@dataclass(frozen=True, repr=False)
class Predictions(Shown):
    """Predictions on N images.

    Attributes:
        probabilities: (N, K) float32; each row sums to 1, or is NaN where the model's output is not finite
        indices: (N,) int64, position of each image in the input
        paths: (N,) files of the images; None where they are no files
    """

    probabilities: NDArray[np.float32]
    indices: NDArray[np.int64]
    paths: Sequence[str] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) int64, the class of the largest probability; -1 where the probabilities are NaN."""
        return predicted_classes(self.probabilities)

    @property
    def class_prior(self) -> NDArray[np.float32]:
        """(K,) float32, estimated frequency of each class: its fraction of the predicted classes."""
        predicted = self._predicted
        frequencies = np.bincount(predicted, minlength=self.probabilities.shape[1]) / max(len(predicted), 1)
        return np.asarray(frequencies, np.float32)

    @property
    def _predicted(self) -> NDArray[np.int64]:
        """The predicted classes of the images that have one."""
        return self.labels[self.labels >= 0]

    def __repr__(self) -> str:
        count, num_classes = self.probabilities.shape
        predicted = self._predicted
        missing = count - len(predicted)
        parts = [f"{count:,} images, {num_classes} classes"]
        if missing:
            parts.append(f"{missing:,} without a class: the model's output is not finite")
        if len(predicted):
            usual = ", ".join(f"{label} ({times:,})" for label, times in Counter(predicted.tolist()).most_common(5))
            confidence = self.probabilities[self.labels >= 0].max(1).mean()
            parts += [f"most frequent: {usual}", f"mean confidence {confidence:.2f}"]
        return "; ".join(parts)


def predict(
    model: nn.Module | str | Path,
    images: Any,
    *,
    head: str | None = None,
    evaluation_transform: Transform | None = None,
    **settings: Any,
) -> Predictions:
    """Predict the classes of images.

    Args:
        model: any module from images (B, C, H, W) to logits (B, K), such as the ``model`` of an
            :class:`~tllib_ancon.training.adapt.AdaptationResult`. Device and mode are unchanged. Or a checkpoint or run
            directory; or a module beside ``checkpoint``, whose weights a copy of it then has
        images: as for :func:`tllib_ancon.adapt`
        head: as for :func:`tllib_ancon.adapt`, for a module that returns several tensors
        evaluation_transform: item -> tensor (C, H, W), or an image processor of transformers; uint8 tensors reach it
            as PIL images. Default: for images from the run directory or the model's timm, transformers, open_clip or
            torchvision metadata; other tensors are unchanged.
        **settings: of :class:`~tllib_ancon.config.predict.PredictConfig`, such as ``batch_size=64`` or ``views=2``

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)
    """
    config = PredictConfig(**{"quiet": True, **settings})
    with devices.using_processor(config.threads):
        predictor = Predictor(config, model, evaluation_transform, head=head)
        domain = predictor.open(images)
        positions = np.asarray(domain.positions, dtype=np.int64)
        return Predictions(predictor.probabilities(domain), positions, domain.paths)


def write_prediction_table(config: PredictionsConfig) -> dict[str, int]:
    """Write a row for each image, with an error if it cannot be read; returns the number of ``rows`` and of ``errors``.
    CSV and Parquet have showable names; NPZ has the paths unchanged."""
    with devices.using_processor(config.threads):
        out = None if config.out == STANDARD_OUTPUT else Path(config.out)
        if out is not None and out.suffix.lower() not in FORMATS:
            raise UserError(
                f"`out={out}`: its ending decides the format; expected {', '.join(FORMATS)}, or - for standard output"
            )
        if out is not None and out.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
            raise UserError("Parquet needs pyarrow; install it: pip install pyarrow")
        if out is not None:
            new_file(out, config.overwrite)
        predictor = Predictor(config)
        domain = predictor.open()
        images = TolerantImages(*predictor.prepare(domain))
        probabilities = predictor.probabilities(domain, images)
        unread = np.isnan(probabilities.max(1)).tolist()
        errors = [images.error(row) if bad else "" for row, bad in enumerate(unread)]
        names = list(map(str, domain.positions if domain.paths is None else domain.paths))
        num_classes = probabilities.shape[1]
        known = ModelClasses.of(predictor.network, num_classes, predictor.start)
        classes = predictor.start.classes or known.usable_names or numbered(num_classes)
        _write(out, names, classes, probabilities, errors, config.probabilities)
        return {"rows": len(domain), "errors": sum(map(bool, errors))}


@devices.on_main
def _write(
    out: Path | None,
    names: Sequence[str],
    classes: Sequence[str],
    probabilities: NDArray[np.float32],
    errors: Sequence[str],
    every_class: bool,
) -> None:
    """Write a row for each image in the format of the file's ending. An image with an error has no class."""
    suffix, predicted = "" if out is None else out.suffix.lower(), probabilities.argmax(1)
    is_read = np.array(errors) == ""
    if out is not None and suffix == ".npz":
        labels = np.where(is_read, predicted, -1)
        arrays: dict[str, Any] = {"paths": np.array(names), "labels": labels, "probabilities": probabilities}
        arrays |= {"errors": np.array(errors, dtype=str), "classes": np.array(classes)}
        return write_whole(out, lambda file: np.savez_compressed(file, **arrays))
    shown = np.array([*map(showable, classes)], dtype=object)
    columns: dict[str, Any] = {
        "path": [*map(showable, names)],
        "class": np.where(is_read, shown[predicted], None),
        "confidence": probabilities.max(1),
    }
    if every_class:
        columns |= {f"probability_{name}": column for name, column in zip(shown, probabilities.T, strict=True)}
    columns["error"] = pandas.Series([showable(error) or None for error in errors], dtype=object)
    frame = pandas.DataFrame(columns)
    if out is not None and suffix == ".parquet":
        return write_whole(out, lambda file: frame.to_parquet(file, index=False))
    frame = frame.astype(object)
    text = csv_text([frame.columns, *frame.where(frame.notna(), None).itertuples(index=False)])
    if out is None:
        sys.stdout.write(text)
    else:
        write_bytes(out, text.encode())


FORMATS = (".csv", ".parquet", ".npz")


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
        try:
            self.domain.image(key)
        except UserError as error:
            return str(error).partition("; `skip_corrupt")[0]
        return "the model's output is not finite"
