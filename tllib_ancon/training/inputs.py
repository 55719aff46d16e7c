"""The images that the caller passes or the settings name, opened as a domain and cached."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data import cache
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.layouts import layout_of, missing_dataset
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.data.pixels import Decoding
from tllib_ancon.data.transforms import ImageTransform
from tllib_ancon.runtime.errors import UserError, unknown_name
from tllib_ancon.runtime.types import Options
from tllib_ancon.training import devices
from tllib_ancon.training.image_transforms import ImagesConfig, Transforms, TransformSource, refuse_unread_preprocessing
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.source import Source


def open_target(
    config: AdaptConfig, source: Source, images: Any, labels: Any, user_transforms: TransformSource
) -> Domain:
    """The target images that the caller passes, or that the settings name."""
    target = open_images(config, images, labels, source.classes)
    refuse_unread_preprocessing(config, target, user_transforms)
    if source.checkpoint and config.root and config.data:
        _require_known_source_domains(config)
    return target


def _require_known_source_domains(config: AdaptConfig) -> None:
    """Raise an error for the name of a source domain, which is only recorded, that the dataset does not have."""
    names = layout_of(str(config.data)).named_domains(Path(str(config.root)))
    for code in config.source:
        if names and code not in names:
            raise unknown_name(f"source domain of {config.data}:", code, names)


def open_images(config: AdaptConfig | PredictConfig, images: Any, labels: Any, classes: Sequence[str] | None) -> Domain:
    """The images that the caller passes, or that the settings name. ``labels`` False reads none."""
    if images is None and labels is not None and not isinstance(labels, bool):
        raise UserError("`labels` belong to `images`; pass both, or neither")
    if images is None or isinstance(images, str | os.PathLike):
        named = config if images is None else config.replace(root=str(images))
        split = "train" if isinstance(config, AdaptConfig) else "test"
        opened = open_domains(named, config.target, split, classes, labels)
    else:
        opened = as_domain(images, labels=labels, classes=classes, decoding=Decoding.of(config))
    if opened.ignored:
        Progress(config.quiet).line(f"{len(opened):,} images; {opened.ignored}")
    return opened


def open_domains(
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
    how: Options = {
        "classes": classes,
        "skip_corrupt": config.skip_corrupt,
        "workers": config.workers,
        "decoding": Decoding.of(config),
    }
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


def with_cache(config: ImagesConfig, images: Domain, transforms: Transforms) -> Domain:
    """The images as the settings decode them. What training or prediction reads again is cached."""
    decoded = images.decoded_by(Decoding.of(config))
    pair = transforms.train, transforms.evaluation
    resizings = [transform.resizing for transform in pair if isinstance(transform, ImageTransform)]
    if config.cache is not None:
        return cache.cached(decoded, config.cache, resizings)
    if isinstance(config, PredictConfig):
        return decoded
    room = devices.free_memory() // 4
    return cache.kept_in_memory(decoded, resizings, room, Progress(config.quiet).line)
