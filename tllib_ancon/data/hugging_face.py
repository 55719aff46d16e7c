"""Images in a dataset of Hugging Face: splits on disk, in the cache or on the hub, and their columns."""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.folders import ROOT
from tllib_ancon.data.images import IMAGE_NAMES, Encoded, open_file
from tllib_ancon.runtime.errors import UserError, one_line, reading, unknown_name

HUGGING_FACE = "hf:"

LABEL_NAMES = ("label", "labels")


class Column(Encoded):
    """One column of images of a Hugging Face dataset. It follows the rules of files."""

    def __init__(self, dataset: Any, column: str, name: str):
        from datasets import Image as ImageFeature

        if not isinstance(dataset.features[column], ImageFeature):
            raise UserError(
                f"{name}: column {column!r} holds no images but {dataset.features[column]}; name another as "
                "`image_column`"
            )
        self.dataset = dataset.select_columns([column]).cast_column(column, ImageFeature(decode=False))
        self.fingerprint, self.column, self.name = dataset._fingerprint, column, name

    def __len__(self) -> int:
        return len(self.dataset)

    @contextmanager
    def opened(self, position: int) -> Iterator[tuple[BinaryIO, str]]:
        where = f"{self.name}, image {position}"
        entry = self.dataset[position][self.column]
        if not isinstance(entry, dict):
            raise UserError(f"{where}: {entry!r:.80} is no image; expected one")
        if entry.get("bytes") is not None:
            yield io.BytesIO(entry["bytes"]), where
            return
        with open_file(str(entry.get("path"))) as opened:
            yield opened

    def content(self) -> bytes:
        return f"{self.fingerprint} {self.column}".encode()


def open_splits(name: str, codes: Sequence[str], allow_download: bool) -> Any:
    """Splits of a dataset on disk, in the cache of the library ``datasets`` (the extra ``huggingface``) or its hub."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"datasets of Hugging Face need the library datasets ({one_line(error)}): pip install datasets"
        ) from error
    full, offline = HUGGING_FACE + name, datasets.config.HF_HUB_OFFLINE or not allow_download
    saved = any(Path(name, file).is_file() for file in ("state.json", "dataset_info.json", "dataset_dict.json"))
    hint = "" if allow_download or os.path.isdir(name) else "; `allow_download=True` asks the hub for it"
    parts = []
    for code in codes:
        configuration, _, split = code.rpartition("/")
        with reading(full, "a dataset", hint), patch.object(datasets.config, "HF_HUB_OFFLINE", offline):
            loaded: Any = (
                datasets.load_from_disk(name)
                if saved
                else datasets.load_dataset(name, configuration or None, trust_remote_code=False)
            )
        if hasattr(loaded, "keys"):
            split = next(iter(loaded)) if split == ROOT and len(loaded) == 1 else split
            if split not in loaded:
                raise unknown_name(f"split of {full}:", split, loaded)
            loaded = loaded[split]
        parts.append(loaded)
    if any(part.features != parts[0].features for part in parts):
        raise UserError(f"{full}: the splits {', '.join(codes)} have other columns or classes; name splits that fit")
    return datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0]


def of_hugging_face(
    dataset: Any,
    name: str,
    classes: Sequence[str] | None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Domain:
    if hasattr(dataset, "keys") and not hasattr(dataset, "features"):
        raise UserError(f"{name}: a dataset with splits; choose one of {', '.join(dataset.keys())}")
    if not hasattr(dataset, "__len__"):
        raise UserError(f"{name}: {type(dataset).__name__} has no length; load it without streaming")
    if not len(dataset):
        raise UserError(f"{name}: the dataset is empty; give one with images")
    column = _column(dataset, image_column, "Image", IMAGE_NAMES, "`image_column`", name)
    if column is None:
        raise UserError(f"{name}: no column of images among {', '.join(dataset.features)}; name it by `image_column`")
    images = Column(dataset, column, name)
    column = _column(dataset, label_column, "ClassLabel", LABEL_NAMES, "`label_column`", name)
    named = (list(classes or ()), None) if column is None else _labels(dataset, column, classes, name)
    return Domain(name, images, *named)


def _column(dataset: Any, given: str | None, kind: str, usual: Sequence[str], setting: str, name: str) -> str | None:
    """The given column, the only one of this kind of feature, or the one with a usual name."""
    if given is not None:
        if given not in dataset.features:
            raise unknown_name(f"column ({setting}) of {name}:", given, dataset.features)
        return given
    columns = [column for column, feature in dataset.features.items() if type(feature).__name__ == kind]
    named = [column for column in usual if column in (columns or dataset.features)]
    if not named and len(columns) > 1:
        raise UserError(f"{name}: several columns could be meant, {', '.join(columns)}; choose one by {setting}")
    return next(iter(named or columns), None)


def _labels(
    dataset: Any, column: str, classes: Sequence[str] | None, name: str
) -> tuple[Sequence[str], NDArray[np.int64] | None]:
    """Names of the classes, and the labels unless some are missing, which is -1 or None."""
    values = np.asarray(dataset.with_format("numpy")[column][:])
    names = getattr(dataset.features[column], "names", None)
    if values.dtype.kind == "U":
        names, values = np.unique(values, return_inverse=True)
    if values.dtype.kind not in "iu" or values.min() < 0:
        return classes or names or (), None
    if names is None:  # numbers alone: they count the classes
        return classes or numbered(int(values.max()) + 1), values
    names = list(map(str, names))
    expected = list(classes or names)
    strange = [label for label in names if label not in expected]
    if strange:
        raise UserError(
            f"{name} has other classes, {strange[0]!r} first: {', '.join(names)} instead of {', '.join(expected)}; "
            "name a split with the same classes"
        )
    return expected, np.array([expected.index(label) for label in names])[values]
