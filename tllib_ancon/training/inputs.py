"""The images that settings name: opened as a domain, and cached."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data import cache
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.folders import SUFFIXES
from tllib_ancon.data.layouts import missing_dataset
from tllib_ancon.data.lists import read_image_list
from tllib_ancon.data.named_arrays import ARRAY_SUFFIXES
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.data.pixels import Decoding
from tllib_ancon.data.transforms import ImageTransform
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import devices
from tllib_ancon.training.image_transforms import ImagesConfig, Transforms
from tllib_ancon.training.progress import Progress

LIST_SUFFIXES = (".txt", ".csv", ".lst", ".list", "")


def images_of(
    config: AdaptConfig | PredictConfig, images: Any = None, labels: Any = None, classes: Sequence[str] | None = None
) -> Domain:
    """The images that the caller passes, or that the settings name. ``labels`` False reads none."""
    opened = _opened(config, images, labels, classes)
    if opened.ignored:
        Progress(config.quiet).line(f"{len(opened):,} images; {opened.ignored}")
    return opened


def _opened(config: AdaptConfig | PredictConfig, images: Any, labels: Any, classes: Sequence[str] | None) -> Domain:
    is_path = isinstance(images, str | os.PathLike)
    names_a_layout = config.data is not None or bool(config.target)
    if is_path and not names_a_layout:
        return as_domain(images, labels=labels, classes=classes, decoding=Decoding.of(config), **_reading(config))
    if images is not None and not is_path:
        return as_domain(images, labels=labels, classes=classes, decoding=Decoding.of(config))
    if labels is not None and not isinstance(labels, bool):
        raise UserError("`labels` belong to `images`; pass both, or neither")
    named = config if images is None else config.replace(root=str(images))
    if isinstance(config, AdaptConfig) or names_a_layout:
        split = "train" if isinstance(config, AdaptConfig) else "test"
        return open_images(named, config.target, split, classes, labels)
    return _open_root(config, labels, classes)


def _open_root(config: PredictConfig, labels: bool | None, classes: Sequence[str] | None) -> Domain:
    """The folder, the image, the arrays or the image list that ``root`` names."""
    root = Path(str(config.root))
    if not root.is_file() or root.name.lower().endswith((*SUFFIXES, *ARRAY_SUFFIXES, ".npy")):
        return as_domain(root, labels=labels, classes=classes, decoding=Decoding.of(config), **_reading(config))
    if root.suffix.lower() not in LIST_SUFFIXES:
        raise UserError(f"{root} is no image ({', '.join(SUFFIXES)}) and no image list (.txt); convert it")
    is_in_a_dataset = root.parent.name == "image_list"
    paths, _ = read_image_list(root, root.parent.parent if is_in_a_dataset else root.parent)
    return Domain.of_files(root.stem, paths)


def _reading(config: AdaptConfig | PredictConfig) -> dict[str, Any]:
    """How the files of a folder are read."""
    return {
        "skip_corrupt": config.skip_corrupt,
        "workers": config.workers,
        "allow_outside": config.allow_outside_root,
    }


def open_images(
    config: ImagesConfig,
    codes: Sequence[str],
    split: str = "train",
    classes: Sequence[str] | None = None,
    labels: bool | None = None,
) -> Domain:
    """The domain of these codes, or without them the folder ``root``; ``classes`` are names of the model's classes."""
    if config.root is None:
        raise UserError("`root` is needed; pass the folder of the dataset")
    if config.data is None and codes:
        raise missing_dataset(config.root)
    how: dict[str, Any] = {"classes": classes, "skip_corrupt": config.skip_corrupt, "workers": config.workers}
    how["decoding"] = Decoding.of(config)
    if config.data is None:
        opened = as_domain(config.root, labels=labels, **how, allow_outside=config.allow_outside_root)
    else:
        opened = open_domain(config.root, config.data, codes, split, **how, **config.opening)
    if config.skip_corrupt:
        count = len(opened) + len(opened.skipped)
        progress = Progress(config.quiet)
        progress.line(f"{len(opened.skipped)} of the {count} images of domain {opened.name} are left out")
        for reason in opened.skipped:
            progress.line(f"  {reason}")
    return opened


def prepared(config: ImagesConfig, images: Domain, transforms: Transforms) -> Domain:
    """The images as the settings read them, in a cache."""
    decoded = images.decoded_by(Decoding.of(config))
    pair = transforms.train, transforms.evaluation
    resizings = [transform.resizing for transform in pair if isinstance(transform, ImageTransform)]
    if config.cache is not None:
        return cache.cached(decoded, config.cache, resizings)
    if isinstance(config, PredictConfig):
        return decoded
    room = devices.free_memory() // 4
    return cache.kept_in_memory(decoded, resizings, room, Progress(config.quiet).line)
