"""Images in a dataset of Hugging Face: splits on disk, in the cache or on the hub, and their columns."""

import io
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image

from tllib_ancon.data.folders import ROOT
from tllib_ancon.data.image_files import decoded, load_image
from tllib_ancon.data.image_source import ImageSource, numbered
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.layout import Layout, Opening, register
from tllib_ancon.data.readers import Reader
from tllib_ancon.data.transforms import KEEP_RATIO
from tllib_ancon.runtime.errors import BadImages, named, reading, unknown_name
from tllib_ancon.runtime.extras import require

HUGGING_FACE = "hf:"
"""How names of Hugging Face begin."""

SAVED_FILES = ("state.json", "dataset_info.json", "dataset_dict.json")
"""Files of which ``save_to_disk`` writes one."""


class _HuggingFace(Layout):
    """``hf:NAME`` on the hub or in the cache, or ``hf:PATH`` of a folder, from the root or the working directory."""

    name = HUGGING_FACE
    placeholder = "NAME_OR_PATH"
    help = "a dataset of Hugging Face, on the hub or in a folder"
    resizing = KEEP_RATIO

    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        return self.open(replace(opening, codes=[code]))

    def open(self, opening: Opening) -> ImageSource:
        place = opening.dataset.removeprefix(self.name)
        if not os.path.isdir(place) and (opening.root / place).is_dir():
            place = str(opening.root / place)
        splits = _open_splits(place, opening.codes, opening.allow_download)
        return source_of_dataset(splits, f"{self.name}{place} {'+'.join(opening.codes)}")


register(_HuggingFace())


class _Column(Reader):
    """One column of images of a Hugging Face dataset. It follows the rules of files."""

    def __init__(self, dataset: Any, column: str, name: str):
        from datasets import Image as ImageFeature

        undecoded = dataset.with_format(None).select_columns([column])
        self.dataset = undecoded.cast_column(column, ImageFeature(decode=False))
        self.fingerprint = dataset._fingerprint
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
        return f"{self.fingerprint} {self.column}".encode()


def _open_splits(place: str, codes: Sequence[str], allow_download: bool) -> Any:
    """Splits of a dataset on disk, in the cache of the library ``datasets`` or its hub."""
    name = HUGGING_FACE + place
    require(f"the dataset {name}", "datasets", extra="huggingface")
    import datasets

    offline = datasets.config.HF_HUB_OFFLINE or not allow_download
    advice = f"give a folder, or a name of the hub: {named('allow_download', True)} asks the hub for it"
    splits = []
    with reading(name, "a dataset", advice), patch.object(datasets.config, "HF_HUB_OFFLINE", offline):
        for code in codes:
            configuration, _, split = code.rpartition("/")
            splits.append(_split_of(_load(place, configuration), split, name))
        return datasets.concatenate_datasets(splits)


def _load(place: str, configuration: str) -> Any:
    """A dataset or its splits by name, from a folder or the hub."""
    import datasets

    if any(Path(place, file).is_file() for file in SAVED_FILES):
        return datasets.load_from_disk(place)
    return datasets.load_dataset(place, configuration or None, trust_remote_code=False)


def _split_of(loaded: Any, split: str, name: str) -> Any:
    """One split of what was loaded; a dataset without splits is returned as it is."""
    if not hasattr(loaded, "keys"):
        return loaded
    if split == ROOT and len(loaded) == 1:
        return next(iter(loaded.values()))
    if split not in loaded:
        raise unknown_name(f"split of {name}:", split, loaded)
    return loaded[split]


def source_of_dataset(dataset: Any, name: str) -> ImageSource:
    """The images and labels in the columns of a dataset."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "features") or not len(dataset):
        raise BadImages(f"{name}: {type(dataset).__name__} has no images by number", "give one split without streaming")
    column = _column_of(dataset, "Image", "image")
    if column is None:
        raise BadImages(
            f"{name}: which column of {', '.join(dataset.features)} has the images is not known",
            "pass a dataset with one column of images, and at most one of labels, by dataset.select_columns in Python",
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
