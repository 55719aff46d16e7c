"""Opening images as a domain: by the name of a dataset, or from Python objects."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.utils.data import DataLoader, Dataset

from tllib_ancon.data.hugging_face import source_of_dataset
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import Opening
from tllib_ancon.data.layouts import layout_of
from tllib_ancon.data.lists import listed_images
from tllib_ancon.data.readers import Loader, reader_of
from tllib_ancon.runtime.errors import BadImages, UserError, named, reading

_LIST_SUFFIXES = (".txt", ".lst", ".list")


def open_domain(
    root: str | os.PathLike[str],
    dataset: str,
    codes: Sequence[str] = (),
    split: str = "train",
    *,
    labels: ArrayLike | None = None,
    skip_corrupt: bool = False,
    workers: int = 0,
    loader: Loader | None = None,
    **options: Any,
) -> ImageSource:
    """Open the domains of these codes as one; nothing is downloaded.

    A code may be a list or a folder (``.`` is the root). Every image must exist, unless ``skip_corrupt`` decodes each
    once, in ``workers`` processes, and leaves out unreadable images. ``labels`` and ``loader`` are those of
    :func:`as_domain`. The other ``options`` are those of :class:`~tllib_ancon.data.layout.Opening`, too.
    """
    layout = layout_of(dataset)
    opening = Opening(Path(root).expanduser(), dataset, codes or layout.default_codes, split, **options)
    if not opening.codes:
        raise BadImages(
            f"no domain given for dataset {dataset}",
            f"name one as {named('target')}, to pretrain as {named('source')}, or leave {named('data')} out",
        )
    return _complete(layout.open(opening), labels, loader, skip_corrupt, workers)


def as_domain(
    images: Any,
    *,
    labels: ArrayLike | None = None,
    skip_corrupt: bool = False,
    workers: int = 0,
    loader: Loader | None = None,
) -> ImageSource:
    """Images of Python objects: an :class:`ImageSource`, or images as for :func:`tllib_ancon.adapt`.

    Hugging Face datasets and ``x.npy`` beside ``y.npy`` bring labels. Otherwise there are none by default; given labels
    are named by numbers. A folder holds images without labels, at any depth, until a model is known whose classes have
    the names of its subfolders. ``labels`` False takes none.
    """
    return _complete(_recognised(images), labels, loader, skip_corrupt, workers)


def _recognised(images: Any) -> ImageSource:
    """The images of an object, without any decoded."""
    if isinstance(images, ImageSource):
        return images
    if isinstance(images, str | os.PathLike):
        return _at_path(Path(images).expanduser())
    name = type(images).__name__
    if type(images).__module__.partition(".")[0] == "datasets":
        return source_of_dataset(images, "the dataset")
    if hasattr(images, "keys") or isinstance(images, tuple):
        raise BadImages(
            f"images are a {name}, and which part of it are the images is not known",
            "pass its array of images or its column of paths alone, such as table['path'], or torch.utils.data."
            "TensorDataset(images, labels)",
        )
    paths = images
    if getattr(images, "ndim", 0) == 1 and not isinstance(images, torch.Tensor):  # such as the column of a table
        paths = images.tolist()
    if isinstance(paths, list) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
        return ImageSource.of_files("given", list(map(os.fspath, paths)))
    return ImageSource(name, reader_of(images, name))


def _at_path(path: Path) -> ImageSource:
    """The images of a folder, of a list or of an array, or one image.

    The paths of a list begin at its folder, or at the dataset that it lies in. Labels of an array lie beside it, in
    ``y.npy``.
    """
    if path.is_dir():
        layout = layout_of("Folder")
        return replace(layout.open(Opening(path, layout.name, layout.default_codes)), plain_folder=True)
    if not path.exists():
        raise BadImages(f"{path} does not exist", "pass a folder of images, an image, a list .txt or an array .npy")
    if path.suffix == ".npy":
        source = ImageSource(path.stem, reader_of(_open_array(path), str(path)))
        label_file = path.with_name("y.npy")
        return source.with_labels(_open_array(label_file)) if label_file.is_file() else source
    if path.suffix not in _LIST_SUFFIXES:
        return ImageSource.of_files("given", [str(path)])
    root = path.parent
    if root.name == "image_list":
        root = root.parent
    return listed_images("given", path, root)


def _open_array(file: Path) -> Any:
    """The array in a file, mapped from disk."""
    with reading(file, "an array", "save an array of numbers with numpy.save"):
        return np.lib.format.open_memmap(file, mode="r")


def _complete(
    source: ImageSource, labels: ArrayLike | None, loader: Loader | None, skip_corrupt: bool, workers: int
) -> ImageSource:
    """The images with these labels, by the loader. A missing file is an error; with ``skip_corrupt`` an image that
    cannot be read is left out."""
    domain = source.read_by(loader)
    if skip_corrupt:
        domain = _readable(domain, workers)
    missing = [path for path in domain.paths or () if not os.path.isfile(path)]
    if missing:
        raise BadImages(
            f"domain {domain.name} is incomplete: {len(missing)} of {len(domain)} images are missing, {missing[0]} "
            "first",
            f"correct the paths, or pass {named('skip_corrupt', True)} to leave such images out",
        )
    if labels is None:
        return domain
    chosen = replace(domain, plain_folder=False)
    if labels is False:
        return chosen.without_labels()
    return chosen.with_labels(labels)


def _readable(domain: ImageSource, workers: int) -> ImageSource:
    reasons = list(DataLoader(_Reasons(domain), batch_size=None, num_workers=workers, generator=torch.Generator()))
    skipped = [reason for reason in reasons if reason]
    if len(skipped) == len(domain):
        raise BadImages(
            f"domain {domain.name}: not one of its {len(domain)} images can be decoded",
            f"repair them or give others: {skipped[0]}",
        )
    readable = [index for index, reason in enumerate(reasons) if not reason]
    return replace(domain.subset(readable), skipped=skipped)


@dataclass(frozen=True, eq=False)
class _Reasons(Dataset[str]):
    """Why an image cannot be read; empty text for one that can."""

    domain: ImageSource

    def __len__(self) -> int:
        return len(self.domain)

    def __getitem__(self, index: int) -> str:
        try:
            self.domain.image(index)
        except UserError as error:
            return error.what
        return ""
