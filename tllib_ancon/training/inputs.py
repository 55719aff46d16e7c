"""The images that settings name: opened as a domain, transformed and cached."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data import cache
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.folders import SUFFIXES
from tllib_ancon.data.layouts import default_domains, missing_dataset
from tllib_ancon.data.lists import read_image_list
from tllib_ancon.data.named_arrays import ARRAY_SUFFIXES
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.data.pixels import Decoding
from tllib_ancon.data.transforms import (
    ImageTransform,
    evaluation_transform,
    second_view,
    train_transform,
)
from tllib_ancon.models.classifier import NetworkClassifier
from tllib_ancon.models.preprocessing import channels_of
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import devices
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import PassedTransforms, Transforms, known_preprocessing, preprocessing_by

ImagesConfig = AdaptConfig | PretrainConfig | PredictConfig
"""Settings of images, of how they become tensors, and of the network that takes them."""

PREPARING = (
    "norm_mean",
    "norm_std",
    "image_size",
    "crop_fraction",
    "val_resizing",
    "train_resizing",
    "resize_size",
    "scale",
    "ratio",
    "padding",
    "rotation",
)
"""Settings of how images become tensors."""
READING = ("pixel_range", "bands")
"""Settings of how files become images."""

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
        return open_images(named, config.target or default_domains(config.data), split, classes, labels)
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


def refuse_without_effect(config: ImagesConfig, images: Domain, given: PassedTransforms = None) -> None:
    """Raise an error for settings of preprocessing that change nothing: of tensors, or beside the caller's own
    transforms.

    Args:
        config: settings of the user, before any default is filled in
    """
    if not images.holds_tensors and not isinstance(given, Transforms):
        return
    fields = type(config).model_fields
    for name in (*PREPARING, *READING) if images.holds_tensors else PREPARING:
        if name not in fields or getattr(config, name) in (None, fields[name].default):
            continue
        if images.holds_tensors:
            reason = "on tensors of floats, which the model gets unchanged; leave it out, or pass images as bytes"
        else:
            reason = "beside `evaluation_transform`, which does all preprocessing; leave one of them out"
        raise UserError(f"`{name}` has no effect {reason}")


def transforms_of(
    config: ImagesConfig, network: nn.Module, images: Domain, given: PassedTransforms = None
) -> Transforms:
    """Transforms of images: given, none for tensors, else by the network's preprocessing."""
    preprocessing = preprocessing_by(dict(config), known_preprocessing(network, given))
    if isinstance(given, Transforms):
        return replace(given, preprocessing=preprocessing)
    if images.holds_tensors or preprocessing is None:
        return Transforms(nn.Identity(), nn.Identity(), preprocessing)
    _require_channels(network, len(preprocessing.mean))
    evaluation = evaluation_transform(preprocessing)
    train = evaluation if isinstance(config, PredictConfig) else train_transform(preprocessing)
    return Transforms(train, evaluation, preprocessing, second_view(preprocessing))


def _require_channels(network: nn.Module, channels: int) -> None:
    """Raise an error for a network whose number of channels differs from the images'."""
    expected = channels_of(network.network if isinstance(network, NetworkClassifier) else network)
    if expected in (None, channels):
        return
    if expected in (1, 3):
        advice = f"pass `norm_mean` and `norm_std` of {expected} value{'s' if expected > 1 else ''} each"
    else:
        advice = "image files have 3, or 1 for grey: pass arrays of floats (N, C, H, W) in Python"
    raise UserError(f"the network takes images of {expected} channels, and images here get {channels}; {advice}")


def prepared(
    config: ImagesConfig, network: nn.Module, images: Domain, given: PassedTransforms = None
) -> tuple[Domain, Transforms]:
    """The images, cached, and their transforms."""
    transforms = transforms_of(config, network, images, given)
    images = images.decoded_by(Decoding.of(config))
    both = transforms.train, transforms.evaluation
    resizings = [transform.resizing for transform in both if isinstance(transform, ImageTransform)]
    if config.cache is not None:
        images = cache.cached(images, config.cache, resizings)
    elif not isinstance(config, PredictConfig):
        room = devices.free_memory() // 4
        images = cache.kept_in_memory(images, resizings, room, Progress(config.quiet).line)
    return images, transforms
