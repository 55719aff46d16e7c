"""``predict`` on the command line: a file with a row for each image, in the format of its ending."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tllib_ancon.config.predict import STANDARD_OUTPUT, PredictionsConfig
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.runs.files import new_file, write_bytes, write_whole
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import BadSetting, UserError, named
from tllib_ancon.runtime.text import counted, csv_text, showable
from tllib_ancon.training.predict import Predictor

FORMATS = (".csv", ".npz")


def write_prediction_table(config: PredictionsConfig) -> dict[str, int]:
    """Write a row for each image, with an error if it cannot be read; returns the number of ``rows`` and of ``errors``.
    A CSV file has showable names; NPZ has the paths unchanged."""
    out = None
    if config.out != STANDARD_OUTPUT:
        out = Path(config.out)
        suffix = out.suffix.lower()
        if suffix not in FORMATS:
            raise BadSetting(
                f"{named('out', out)}: its ending decides the format",
                f"expected {', '.join(FORMATS)}, or - for standard output",
                setting="out",
            )
        new_file(out, config.overwrite)
    with devices.restoring_state(config.threads):
        predictor = Predictor(config)
        domain = predictor.open()
        images = _TolerantImages(*predictor.prepare(domain))
        probabilities = predictor.probabilities(domain, images)
        paths = domain.positions if domain.paths is None else domain.paths
        table = _Table(
            paths=[str(path) for path in paths],
            classes=predictor.source.classes_of(predictor.network, probabilities.shape[1]).distinct_names,
            probabilities=probabilities,
            errors=images.errors(probabilities),
        )
        if all(table.errors):
            images_in_words = counted(len(domain), "image")
            raise UserError(
                f"not one of {images_in_words} has a prediction", f"repair them or give others: {table.errors[0]}"
            )
        _write(table, out, config.probabilities)
        return {"rows": len(domain), "errors": len(domain) - table.errors.count("")}


@dataclass(frozen=True)
class _Table:
    """A row for each image. An image with an error has no class."""

    paths: Sequence[str]
    classes: Sequence[str]
    probabilities: NDArray[np.float32]
    errors: Sequence[str]

    @property
    def labels(self) -> Labels:
        """The class of each image, (N,); -1 for an image with an error."""
        return np.where(np.array(self.errors) == "", self.probabilities.argmax(1), -1)

    def arrays(self) -> dict[str, Any]:
        return {
            "paths": np.array(self.paths),
            "labels": self.labels,
            "probabilities": self.probabilities,
            "errors": np.array(self.errors, dtype=str),
            "classes": np.array(self.classes),
        }

    def columns(self, every_class: bool) -> dict[str, list[Any]]:
        """The columns of the table by name; None where an image has no value."""
        names = [showable(name) for name in self.classes]
        names_of_labels = np.array([*names, None], dtype=object)  # None: of the label -1
        columns: dict[str, list[Any]] = {
            "path": [showable(path) for path in self.paths],
            "class": names_of_labels[self.labels].tolist(),
            "confidence": _numbers(self.probabilities.max(1)),
        }
        if every_class:
            for name, column in zip(names, self.probabilities.T, strict=True):
                columns[f"probability_{name}"] = _numbers(column)
        columns["error"] = [showable(error) or None for error in self.errors]
        return columns


def _numbers(values: NDArray[np.float32]) -> list[float | None]:
    """Numbers (N,), None in place of NaN."""
    return [None if isnan(value) else value for value in values.tolist()]


@processes.on_main
def _write(table: _Table, out: Path | None, every_class: bool) -> None:
    """Write the table in the format of the file's ending, or as CSV to standard output."""
    if out is not None and out.suffix.lower() == ".npz":
        write_whole(out, lambda file: np.savez_compressed(file, **table.arrays()))
        return
    columns = table.columns(every_class)
    text = csv_text([list(columns), *zip(*columns.values(), strict=True)])
    if out is None:
        sys.stdout.write(text)
    else:
        write_bytes(out, text.encode())


class _TolerantImages(UnlabelledImages):
    """Items (index, image); (-1 - index, black) for an image that cannot be read."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        try:
            return super().__getitem__(key)
        except UserError as error:
            if self.domain.is_raw or error.setting == "loader":
                raise
            return -1 - key, self.transformed(Image.new("RGB", (64, 64)), key)

    def errors(self, probabilities: NDArray[np.float32]) -> list[str]:
        """Why an image has no probabilities (N, K); empty for one that has."""
        errors = [""] * len(probabilities)
        for key in np.flatnonzero(np.isnan(probabilities).any(1)).tolist():
            errors[key] = self._error(key)
        return errors

    def _error(self, key: int) -> str:
        try:
            self.domain.image(key)
        except UserError as error:
            return error.what
        return "the model's output is not finite"
