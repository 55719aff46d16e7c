"""How pictures become what a network takes: the transforms that a configuration and the network tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from tllib_ancon.config import ASSUMED, AdaptConfig, PredictConfig, PretrainConfig
from tllib_ancon.data import cache
from tllib_ancon.data.device_augmentation import device_augmentation
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.image_folder import FOLDER
from tllib_ancon.data.resizing import default_resizing
from tllib_ancon.data.transforms import ImageTransform, TransformOptions, evaluation_transform, train_transform
from tllib_ancon.errors import UserError
from tllib_ancon.models.preprocessing import Preprocessing
from tllib_ancon.training.progress import Progress

PictureConfig = AdaptConfig | PretrainConfig | PredictConfig
"""Configurations that say which pictures, how they become tensors, and for which network."""

Transform = Callable[[Any], Any]
"""What the data hold -> tensor (C, H, W)."""

SizedConfig = TypeVar("SizedConfig", AdaptConfig, PretrainConfig, PredictConfig)


@dataclass(frozen=True)
class Transforms:
    """Image -> tensor, for training and for evaluation."""

    train: Transform
    evaluation: Transform

    @classmethod
    def given(cls, train: Callable[[Any], Any] | None, evaluation: Callable[[Any], Any] | None) -> Transforms | None:
        """Both transforms, or None if none was given.

        Raises:
            UserError: only one was given
        """
        if train is None and evaluation is None:
            return None
        if train is None or evaluation is None:
            missing = "train_transform" if train is None else "evaluation_transform"
            raise UserError(f"`{missing}` is needed as well: one transform for training, one for evaluation")
        return cls(train, evaluation)


def with_picture_defaults(config: SizedConfig, preprocessing: Preprocessing | None) -> SizedConfig:
    """The configuration with what is not given of its pictures: size and resizing are those that the network was built
    for or adapted with; else a dataset of TLLib's is resized as TLLib does, and other pictures keep their ratio."""
    train_resizing, val_resizing = default_resizing(config.data or FOLDER)
    defaults = {
        "image_size": getattr(preprocessing, "image_size", None) or ASSUMED["image_size"],
        "crop_fraction": getattr(preprocessing, "crop_fraction", None) or ASSUMED["crop_fraction"],
        "train_resizing": train_resizing,
        "val_resizing": getattr(preprocessing, "val_resizing", None) or val_resizing,
        "resize_size": getattr(preprocessing, "resize_size", None),
    }
    return config.replace(**{name: value for name, value in defaults.items() if getattr(config, name) is None})


def image_transforms(config: PictureConfig, preprocessing: Preprocessing | None, target: Domain) -> Transforms:
    """The transforms of the images of a network: none for tensors; for pictures those that its metadata or the
    configuration tell.

    Raises:
        UserError: pictures, and nothing says how the network takes them
    """
    if target.holds_tensors:
        return Transforms(as_it_is, as_it_is)
    return picture_transforms(config, preprocessing)


def picture_transforms(config: PictureConfig, preprocessing: Preprocessing | None) -> Transforms:
    """The transforms of pictures.

    Args:
        config: what is read of it are the settings of :class:`~tllib_ancon.config.ImageConfig`
        preprocessing: of the network, where it is known

    Raises:
        UserError: nothing says how the network takes pictures
    """
    mean, std = normalisation(config, preprocessing)
    if mean is None or std is None:
        raise UserError(
            "nothing says how pictures are prepared for this network; pass `evaluation_transform`, to adapt also "
            "`train_transform`, or pass `image_size`, `norm_mean` and `norm_std`"
        )
    options = TransformOptions(
        train_resizing=config.train_resizing or "default",
        val_resizing=config.val_resizing or "default",
        resize_size=config.resize_size or ASSUMED["resize_size"],
        image_size=config.image_size or ASSUMED["image_size"],
        crop_fraction=config.crop_fraction or ASSUMED["crop_fraction"],
        scale=config.scale or (0.5, 1.0),
        ratio=config.ratio,
        padding=config.padding,
        rotation=config.rotation,
        horizontal_flip=not config.no_hflip,
        norm_mean=mean,
        norm_std=std,
    )
    train = device_augmentation if config.device_augmentation else train_transform
    return Transforms(train(options), evaluation_transform(options))


def as_it_is(image: Tensor) -> Tensor:
    """The transform of images that are tensors already."""
    return image


def normalisation(
    config: PictureConfig, preprocessing: Preprocessing | None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Mean and standard deviation of each channel: the configuration's, else the network's, where they are known."""
    known = (None, None) if preprocessing is None else (preprocessing.mean, preprocessing.std)
    return config.norm_mean or known[0], config.norm_std or known[1]


def preprocessing_in(config: PictureConfig, preprocessing: Preprocessing | None) -> Preprocessing | None:
    """What a network expects of its images in these settings, so that the adapted model knows it too."""
    mean, std = normalisation(config, preprocessing)
    if mean is None or std is None:
        return None
    crop_fraction = config.crop_fraction or ASSUMED["crop_fraction"]
    return Preprocessing(mean, std, config.image_size, crop_fraction, config.val_resizing, config.resize_size)


def probe(target: Domain, transform: Callable[[Any], Any]) -> Tensor:
    """Two images of the target as a batch, to call a network with."""
    return torch.stack([transform(target.image(index % len(target))) for index in range(2)])


def cached(config: PictureConfig, transforms: Transforms, domain: Domain) -> Domain:
    """The same domain, its pictures resized for these transforms and read from ``cache`` where it is set."""
    resizings = [
        transform.resizing
        for transform in (transforms.train, transforms.evaluation)
        if isinstance(transform, ImageTransform)
    ]
    if config.cache is None or not resizings:
        return domain
    return cache.cached(domain, config.cache, resizings, config.workers, Progress(config.quiet).bar)
