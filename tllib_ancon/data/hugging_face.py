"""Images and labels in the columns of a dataset of Hugging Face."""

import hashlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from tllib_ancon.data.image_files import decoded, load_image
from tllib_ancon.data.image_source import ImageSource, numbered
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.readers import Reader
from tllib_ancon.runtime.errors import BadImages


class _Column(Reader):
    """One column of images of a Hugging Face dataset. It follows the rules of files."""

    def __init__(self, dataset: Any, column: str, name: str):
        from datasets import Image as ImageFeature

        undecoded = dataset.with_format(None).select_columns([column])
        self.dataset = undecoded.cast_column(column, ImageFeature(decode=False))
        self.column = column
        self.name = name

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, position: int) -> Image.Image:
        where = f"{self.name}, image {position}"
        entry = self.dataset[position][self.column]
        if entry and entry["bytes"] is not None:
            return decoded(io.BytesIO(entry["bytes"]), where)
        return load_image(str(entry and entry["path"]))

    def identity(self) -> bytes:
        """The encoded images, and the path of one that lies in a file of its own."""
        digest = hashlib.sha256()
        for entry in self.dataset[self.column]:
            digest.update((entry and entry["bytes"]) or str(entry).encode())
        return digest.digest()


def source_of_dataset(dataset: Any, name: str) -> ImageSource:
    """The images and labels in the columns of a dataset."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "features") or not len(dataset):
        raise BadImages(f"{name}: {type(dataset).__name__} has no images by number", "give one split without streaming")
    column = _column_of(dataset, "Image", "image")
    if column is None:
        raise BadImages(
            f"{name}: which column of {', '.join(dataset.features)} has the images is not known",
            "pass a dataset with one column of images, and at most one of labels, by dataset.select_columns",
        )
    images = _Column(dataset, column, name)
    label_column = _column_of(dataset, "ClassLabel", "label") or "label"
    if label_column not in dataset.features:
        return ImageSource(name, images)
    return ImageSource(name, images, *_labels(dataset, label_column))


def _column_of(dataset: Any, kind: str, usual_name: str) -> str | None:
    """The column of this kind of feature: the only one, or that with the usual name."""
    of_kind = [column for column, feature in dataset.features.items() if type(feature).__name__ == kind]
    if usual_name in of_kind:
        return usual_name
    return of_kind[0] if len(of_kind) == 1 else None


def _labels(dataset: Any, column: str) -> tuple[Sequence[str], Labels | None]:
    """Names of the classes, and the labels unless some are missing, which is -1 or None."""
    values = np.asarray(dataset.with_format("numpy")[column][:])
    names = getattr(dataset.features[column], "names", None) or []
    if values.dtype.kind not in "iu" or values.min() < 0:
        return names, None
    if not len(names):  # numbers alone: they count the classes
        return numbered(int(values.max()) + 1), values
    return [str(label_name) for label_name in names], values
