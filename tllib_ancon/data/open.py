"""Opening images as a domain: by the name of a dataset, or from Python objects."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch.utils.data import DataLoader, Dataset

from tllib_ancon.data.image_source import ImageSource, with_labels
from tllib_ancon.data.layout import Opening
from tllib_ancon.data.layouts import layout_of
from tllib_ancon.data.layouts.arrays import open_arrays
from tllib_ancon.data.layouts.hugging_face import source_of_dataset
from tllib_ancon.data.lists import listed_images
from tllib_ancon.data.readers import Loader, reader_of
from tllib_ancon.runtime.errors import BadImages, UserError, named
from tllib_ancon.runtime.types import Options

LIST_SUFFIXES = (".txt", ".lst", ".list")

PASS_ARRAYS = (
    "pass its array of images or its column of paths alone, such as table['path'], or torch.utils.data."
    "TensorDataset(images, labels)"
)


def open_domain(
    root: str | Path,
    dataset: str,
    codes: Sequence[str] = (),
    split: str = "train",
    *,
    skip_corrupt: bool = False,
    workers: int = 0,
    loader: Loader | None = None,
    **options: Any,
) -> ImageSource:
    """Open the domains of these codes as one; nothing is downloaded unless ``allow_download`` is given.

    A code may be a list, a folder (``.`` is the root) or a split, with the name of a configuration before it as
    ``clipart/train``. A Hugging Face dataset is one of the hub, or a folder that ``save_to_disk`` wrote or that holds
    data files. Every image must exist, unless ``skip_corrupt`` decodes each once, in ``workers`` processes, and leaves
    out unreadable images. ``loader`` reads the files. The other ``options`` are those of
    :class:`~tllib_ancon.data.layout.Opening`, too.
    """
    layout = layout_of(dataset)
    opening = Opening(Path(root), dataset, codes or layout.default_codes, split, **options)
    if not opening.codes:
        raise BadImages(
            f"no domain given for dataset {dataset}", f"name one as {named('target')}, or leave {named('data')} out"
        )
    return _finished(layout.open(opening), opening.classes, loader, skip_corrupt, workers)


def as_domain(
    images: Any,
    *,
    labels: ArrayLike | bool | None = None,
    classes: Sequence[str] | None = None,
    skip_corrupt: bool = False,
    workers: int = 0,
    loader: Loader | None = None,
) -> ImageSource:
    """Images of Python objects: an :class:`ImageSource`, or images as for :func:`tllib_ancon.adapt`.

    The first of :data:`RECOGNISERS` that knows them opens them. The names of ``classes`` are in the order of the labels
    and of the model's outputs. Hugging Face datasets bring names and labels. Otherwise there are none by default; given
    labels are named by numbers. A folder holds images without labels, at any depth, until a model is known whose
    classes have the names of its subfolders. ``labels`` True takes each subfolder as a class, False none.
    """
    how: Options = {"classes": classes, "loader": loader, "skip_corrupt": skip_corrupt, "workers": workers}
    if labels is True and _is_folder(images):
        return open_domain(images, "ImageFolder", **how)
    return labelled(_finished(recognised(images), **how), labels)


def labelled(source: ImageSource, labels: ArrayLike | bool | None) -> ImageSource:
    """The images with labels as for :func:`as_domain`."""
    if labels is None:
        return source
    chosen = replace(source, plain_folder=False)
    if labels is True:
        return chosen
    if labels is False:
        return chosen.without_labels()
    return with_labels(chosen, labels)


def recognised(images: Any) -> ImageSource:
    """The images of an object, without any decoded."""
    for recognise in RECOGNISERS:
        source = recognise(images)
        if source is not None:
            return source
    raise BadImages(
        f"images are a {type(images).__name__}, and which part of it are the images is not known", PASS_ARRAYS
    )


def _opened(images: Any) -> ImageSource | None:
    return images if isinstance(images, ImageSource) else None


def _paths(images: Any) -> ImageSource | None:
    """Paths in a sequence, an array or a column of a table."""
    paths = images
    if getattr(images, "ndim", 0) == 1 and not isinstance(images, torch.Tensor):
        paths = images.tolist()
    if not isinstance(paths, list | tuple) or not paths or not all(map(_is_path, paths)):
        return None
    return ImageSource.of_files("given", list(map(os.fspath, paths)))


def _folder(images: Any) -> ImageSource | None:
    if not _is_folder(images):
        return None
    layout = layout_of("Folder")
    return replace(layout.open(Opening(Path(images), layout.name, layout.default_codes)), plain_folder=True)


def _file(images: Any) -> ImageSource | None:
    """An image list, whose paths begin at its folder or at the dataset that it lies in; an array; one image."""
    if not _is_path(images):
        return None
    file = Path(images)
    if file.suffix == ".npy":
        return open_arrays(file)
    if file.suffix not in LIST_SUFFIXES:
        return ImageSource.of_files("given", [str(file)])
    root = file.parent.parent if file.parent.name == "image_list" else file.parent
    return listed_images("given", file, root)


def _hugging_face(images: Any) -> ImageSource | None:
    if type(images).__module__.partition(".")[0] != "datasets":
        return None
    return source_of_dataset(images, "the dataset")


def _in_memory(images: Any) -> ImageSource | None:
    """An array, a tensor or a map-style dataset; no pair and no mapping of arrays."""
    if hasattr(images, "keys") or isinstance(images, tuple):
        return None
    name = type(images).__name__
    return ImageSource(name, reader_of(images, name))


def _is_path(thing: Any) -> bool:
    return isinstance(thing, str | os.PathLike)


def _is_folder(thing: Any) -> bool:
    return _is_path(thing) and not os.path.isfile(thing)


Recogniser = Callable[[Any], ImageSource | None]
"""Opens images of one kind; None of every other kind."""

RECOGNISERS: tuple[Recogniser, ...] = (_opened, _paths, _folder, _file, _hugging_face, _in_memory)


def _finished(
    source: ImageSource, classes: Sequence[str] | None, loader: Loader | None, skip_corrupt: bool, workers: int
) -> ImageSource:
    """The images as they are read, if all files are there; with ``skip_corrupt`` those that can be read. A model's
    ``classes`` name those of images without labels."""
    domain = source.read_by(loader)
    if classes and domain.labels is None:
        domain = replace(domain, classes=list(classes))
    if skip_corrupt:
        return _readable(domain, workers)
    missing = [path for path in domain.paths or () if not os.path.isfile(path)]
    if missing:
        raise BadImages(
            f"domain {domain.name} is incomplete: {len(missing)} of {len(domain)} images are missing, {missing[0]} "
            "first",
            f"correct the paths, or pass {named('skip_corrupt', True)} to leave such images out",
        )
    return domain


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
