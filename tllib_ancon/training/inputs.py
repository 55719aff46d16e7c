"""The images that settings name: opened as a domain, and cached."""

import os
from collections.abc import Sequence
from typing import Any

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data import cache
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.layouts import missing_dataset
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.data.pixels import Decoding
from tllib_ancon.data.transforms import ImageTransform
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import devices
from tllib_ancon.training.image_transforms import ImagesConfig, Transforms
from tllib_ancon.training.progress import Progress


def images_of(
    config: AdaptConfig | PredictConfig, images: Any = None, labels: Any = None, classes: Sequence[str] | None = None
) -> Domain:
    """The images that the caller passes, or that the settings name. ``labels`` False reads none."""
    opened = _opened(config, images, labels, classes)
    if opened.ignored:
        Progress(config.quiet).line(f"{len(opened):,} images; {opened.ignored}")
    return opened


def _opened(config: AdaptConfig | PredictConfig, images: Any, labels: Any, classes: Sequence[str] | None) -> Domain:
    if images is not None and not isinstance(images, str | os.PathLike):
        return as_domain(images, labels=labels, classes=classes, decoding=Decoding.of(config))
    if images is None and labels is not None and not isinstance(labels, bool):
        raise UserError("`labels` belong to `images`; pass both, or neither")
    named = config if images is None else config.replace(root=str(images))
    split = "train" if isinstance(config, AdaptConfig) else "test"
    return open_images(named, config.target, split, classes, labels)


def open_images(
    config: ImagesConfig,
    codes: Sequence[str],
    split: str = "train",
    classes: Sequence[str] | None = None,
    labels: Any = None,
) -> Domain:
    """The domain of these codes, or without codes what ``root`` names. ``classes``: names of the model's classes."""
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
