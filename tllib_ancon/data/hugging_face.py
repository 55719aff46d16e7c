"""Datasets of Hugging Face, from disk or from the cache of their library (the extra ``huggingface``)."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tllib_ancon.data.decoding import decode, load_image
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.pictures import IMAGE_NAMES, Positions
from tllib_ancon.errors import UserError, one_line, unknown_name

HUGGING_FACE = "hf:"
"""Beginning of the name of a Hugging Face dataset."""

LABEL_NAMES = ("label", "labels")


class HuggingFacePictures:
    """One column of pictures. Their bytes are decoded here, so that the rules are those of files: the same formats,
    16 bits scaled, EXIF orientation not applied.

    Args:
        dataset: a ``datasets.Dataset``
        column: that holds pictures
        name: of the dataset, for errors

    Raises:
        UserError: a column of another kind
    """

    paths = None
    holds_tensors = False

    def __init__(self, dataset: Any, column: str, name: str):
        from datasets import Image as ImageFeature

        if not isinstance(dataset.features[column], ImageFeature):
            raise UserError(f"{name}: column {column!r} holds no images but {dataset.features[column]}")
        self.dataset = dataset.select_columns([column]).cast_column(column, ImageFeature(decode=False))
        self.fingerprint = dataset._fingerprint
        self.column = column
        self.name = name

    def __len__(self) -> int:
        return len(self.dataset)

    def image(self, position: int) -> Image.Image:
        where = f"{self.name}, image {position}"
        found = self.dataset[position][self.column]
        if not isinstance(found, dict):
            raise UserError(f"{where}: {found!r:.80} is no image")
        if found.get("bytes") is not None:
            return decode(io.BytesIO(found["bytes"]), where)
        return load_image(str(found.get("path")))

    def content(self) -> bytes:
        return f"{self.fingerprint} {self.column}".encode()

    def identities(self, positions: Positions) -> Iterator[bytes]:
        return (str(position).encode() for position in positions.tolist())

    def states(self, positions: Positions) -> Iterator[bytes]:
        yield self.content()
        yield from self.identities(positions)


def open_hugging_face(
    name: str,
    splits: Sequence[str],
    classes: Sequence[str] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    allow_download: bool = False,
) -> Domain:
    """Open splits of a dataset; several are joined.

    Args:
        name: a folder that ``save_to_disk`` wrote or that holds data files, or a dataset of the hub
        splits: ``train``, ``test``, ..., with the name of a configuration before it as ``clipart/train`` where the
            dataset has several
        classes, image_column, label_column: see :func:`from_hugging_face`
        allow_download: ask the hub for what is not in the cache. Default: False

    Raises:
        UserError: the library is missing; a dataset that is not there; an unknown split or column; other classes
    """
    library = _library()
    parts = [_split(library, name, code, allow_download) for code in splits]
    features = [part.features for part in parts]
    if any(other != features[0] for other in features[1:]):
        raise UserError(f"{HUGGING_FACE}{name}: the splits {', '.join(splits)} have other columns or classes")
    joined = library.concatenate_datasets(parts) if len(parts) > 1 else parts[0]
    return from_hugging_face(joined, f"{HUGGING_FACE}{name} {'+'.join(splits)}", classes, image_column, label_column)


def from_hugging_face(
    dataset: Any,
    name: str,
    classes: Sequence[str] | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Domain:
    """A domain of a ``datasets.Dataset``.

    Args:
        classes: names of the classes in the order of the labels; the dataset's own names are found among them.
            Default: the dataset's
        image_column: Default: the only column of images, or the one named ``image`` or ``img``
        label_column: Default: the only column of class labels, or the one named ``label`` or ``labels``; without one
            the images have no labels

    Raises:
        UserError: an unknown or missing column; other classes; an empty dataset
    """
    if hasattr(dataset, "keys") and not hasattr(dataset, "features"):
        raise UserError(f"{name}: a dataset with splits; choose one of {', '.join(dataset.keys())}")
    if not hasattr(dataset, "__len__"):
        raise UserError(f"{name}: {type(dataset).__name__} has no length; a dataset that is streamed cannot be used")
    if not len(dataset):
        raise UserError(f"{name}: the dataset is empty")
    images = _column(dataset, image_column, "Image", IMAGE_NAMES, "`image_column`", name)
    if images is None:
        raise UserError(f"{name}: no column of images among {', '.join(dataset.features)}; name it by `image_column`")
    pictures = HuggingFacePictures(dataset, images, name)
    column = _column(dataset, label_column, "ClassLabel", LABEL_NAMES, "`label_column`", name)
    if column is None:
        return Domain(name, pictures, list(classes or ()))
    return Domain(name, pictures, *_labels(dataset, column, classes, name))


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"datasets of Hugging Face need the library `datasets` ({one_line(error)}): "
            'pip install "tllib-ancon[huggingface]"'
        ) from error
    return datasets


def _split(library: Any, name: str, code: str, allow_download: bool) -> Any:
    configuration, _, split = code.rpartition("/")
    try:
        with _network(library, allow_download):
            found = _loaded(library, name, configuration or None)
    except Exception as error:  # the library raises many types
        hint = "" if allow_download or os.path.isdir(name) else "; `allow_download=True` asks the hub for it"
        raise UserError(f"{HUGGING_FACE}{name} cannot be opened ({one_line(error)}){hint}") from error
    if not hasattr(found, "keys"):
        return found
    if split == "." and len(found) == 1:
        return next(iter(found.values()))
    if split not in found:
        raise unknown_name(f"split of {HUGGING_FACE}{name}:", split, found)
    return found[split]


def _loaded(library: Any, name: str, configuration: str | None) -> Any:
    saved = ("state.json", "dataset_info.json", "dataset_dict.json")
    if any(os.path.isfile(os.path.join(name, file)) for file in saved):
        return library.load_from_disk(name)
    return library.load_dataset(name, configuration)


@contextmanager
def _network(library: Any, allowed: bool) -> Iterator[None]:
    """The library without the hub, unless it is allowed."""
    before = library.config.HF_HUB_OFFLINE
    library.config.HF_HUB_OFFLINE = before or not allowed
    try:
        yield
    finally:
        library.config.HF_HUB_OFFLINE = before


def _column(dataset: Any, given: str | None, kind: str, usual: Sequence[str], setting: str, name: str) -> str | None:
    """The given column, the only one of this kind of feature, or the one with a usual name."""
    if given is not None:
        if given not in dataset.features:
            raise unknown_name(f"column ({setting}) of {name}:", given, dataset.features)
        return given
    found = [column for column, feature in dataset.features.items() if type(feature).__name__ == kind]
    named = [column for column in usual if column in (found or dataset.features)]
    if not named and len(found) > 1:
        raise UserError(f"{name}: several columns could be meant, {', '.join(found)}; choose one by {setting}")
    return next(iter(named or found), None)


def _labels(
    dataset: Any, column: str, classes: Sequence[str] | None, name: str
) -> tuple[Sequence[str], NDArray[np.int64] | None]:
    """Names of the classes, and the labels unless some are missing, which datasets write as -1 or None."""
    values = np.asarray(dataset.with_format("numpy")[column][:])
    names = getattr(dataset.features[column], "names", None)
    if values.dtype.kind == "U":
        names, values = np.unique(values, return_inverse=True)
    if values.dtype.kind not in "iu" or values.min() < 0:
        return classes or names or (), None
    if names is None:  # numbers alone: they count the classes
        return classes or numbered(int(values.max()) + 1), values
    names = [str(label) for label in names]
    if classes is None:
        return names, values
    strange = [label for label in names if label not in classes]
    if strange:
        raise UserError(
            f"{name} has other classes, {strange[0]!r} first: {', '.join(names)} instead of {', '.join(classes)}"
        )
    return classes, np.array([list(classes).index(label) for label in names])[values]
