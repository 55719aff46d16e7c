"""``predict`` on the command line: a file with a row for each image, in the format of its ending."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from tllib_ancon.config.predict import STANDARD_OUTPUT, PredictionsConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.opening.open import open_images, open_model
from tllib_ancon.runs.files import new_file, write_arrays, write_bytes
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import BadImages, UserError
from tllib_ancon.runtime.text import counted, csv_text, showable
from tllib_ancon.training.predict import Predictions, predict_images

FORMATS = (".csv", ".npz")


def write_prediction_table(requested: PredictionsConfig) -> dict[str, int]:
    """Write a row for each image, with an error if it cannot be read; returns the number of ``rows`` and of ``errors``.
    A CSV file has showable names; NPZ has the paths unchanged."""
    if requested.out != STANDARD_OUTPUT:
        new_file(requested.out, requested.overwrite, formats=FORMATS)
    with devices.restoring_state(requested.threads):
        opened = open_images(None, open_model(None, requested), requested, labels=False, dataset_class=_TolerantImages)
        predictions = predict_images(opened, _TolerantImages(opened.images, opened.transforms.evaluation))
        errors = [_error(opened.images, key) if label < 0 else "" for key, label in enumerate(predictions.labels)]
        if all(errors):
            raise BadImages(
                f"not one of {counted(len(errors), 'image')} has a prediction",
                f"repair them or give others: {errors[0]}",
            )
        _write(requested, predictions, opened.classes.distinct_names, errors)
        return {"rows": len(errors), "errors": len(errors) - errors.count("")}


@processes.on_main
def _write(settings: PredictionsConfig, predictions: Predictions, classes: Sequence[str], errors: list[str]) -> None:
    """Write the table in the format of the file's ending, or as CSV to standard output."""
    paths = predictions.indices if predictions.paths is None else predictions.paths
    names = [str(path) for path in paths]
    if Path(settings.out).suffix.lower() == ".npz":
        arrays = {
            "paths": names,
            "labels": predictions.labels,
            "probabilities": predictions.probabilities,
            "errors": errors,
            "classes": classes,
        }
        write_arrays(Path(settings.out), arrays)
        return
    text = csv_text(_rows(names, predictions, classes, errors, settings.probabilities))
    if settings.out == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_bytes(Path(settings.out), text.encode())


def _rows(
    names: list[str], predictions: Predictions, classes: Sequence[str], errors: list[str], every_class: bool
) -> Iterator[list[Any]]:
    """The head of the table, and a row for each image; one with an error has no class."""
    columns = [f"probability_{showable(name)}" for name in classes] if every_class else []
    yield ["path", "class", "confidence", *columns, "error"]
    for name, label, row, error in zip(
        names, predictions.labels, predictions.probabilities.tolist(), errors, strict=True
    ):
        if error:
            yield [name, None, None, *[None] * len(columns), error]
        else:
            yield [name, classes[label], row[label], *row[: len(columns)], None]


class _TolerantImages(UnlabelledImages):
    """Items (index, image); (-1 - index, black) for an image that cannot be read."""

    def __getitem__(self, key: int) -> tuple[int, Any]:
        try:
            return super().__getitem__(key)
        except UserError as error:
            if self.domain.is_raw or error.setting == "loader":
                raise
            return -1 - key, self.transformed(Image.new("RGB", (64, 64)), key)


def _error(images: ImageSource, key: int) -> str:
    """Why an image has no prediction."""
    try:
        images.image(key)
    except UserError as error:
        return error.what
    return "the model's output is not finite"
