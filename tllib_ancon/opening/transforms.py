"""How images become tensors: by the transforms of a caller, else by the preprocessing of the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.transforms import Preprocessing, Transform, View, mirror
from tllib_ancon.models.preprocessing import ProcessorTransform, preprocessing_by_transform, preprocessing_of
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.types import Options

StageConfig = AdaptConfig | PretrainConfig | PredictConfig
"""Settings of a stage: of images, of how they become tensors, and of the network that takes them."""

_GEOMETRY = ("image_size", "crop_fraction", "val_resizing", "train_resizing", "scale", "ratio", "padding", "rotation")
"""Settings of a :class:`~tllib_ancon.data.transforms.Preprocessing` by the same names."""

_PREPARING = ("norm_mean", "norm_std", *_GEOMETRY)
"""Settings of how images become tensors."""

Augment = Callable[[Any], Any]
"""A batch of training tensors -> the same, augmented."""


@dataclass(frozen=True)
class Transforms:
    """Image -> tensor for training and for evaluation, and the preprocessing that they follow, if known."""

    train: Transform
    evaluation: Transform
    preprocessing: Preprocessing | None = None
    second_view: View | None = None  # training images -> another view of each
    augment: Augment | None = None  # a batch of training tensors -> the same, augmented


def preprocessing_of_call(train: Transform | None, evaluation: Transform | None) -> Preprocessing | None:
    """The preprocessing by transforms that a caller passes; None where he leaves it to the network and the settings."""
    if train is not None and evaluation is None:
        raise BadSetting(
            f"{named('evaluation_transform')} is needed as well",
            "pass one transform for training and one for evaluation",
            setting="evaluation_transform",
        )
    if evaluation is None:
        return None
    return replace(preprocessing_by_transform(evaluation), train_transform=train)


def preprocessing_for(network: nn.Module, config: StageConfig) -> Preprocessing | None:
    """The preprocessing that a network declares. It is derived here and nowhere else. Settings replace an image
    processor of the network as a whole."""
    declared = preprocessing_of(network)
    if declared is not None and declared.transform is not None and _set_by_user(config):
        return None
    return declared


def preprocessing_by(settings: Options, declared: Preprocessing | None) -> Preprocessing | None:
    """The preprocessing by these settings, else the network's own; None without mean or standard deviation."""
    base = declared or Preprocessing((), (), crop_fraction=1.0)
    horizontal_flip = not settings.get("no_hflip")
    if base.transform is not None:
        return replace(base, horizontal_flip=horizontal_flip)
    mean = settings.get("norm_mean") or base.mean
    std = settings.get("norm_std") or base.std
    if not mean or not std:
        return None
    chosen = {name: settings[name] for name in _GEOMETRY if settings.get(name) is not None}
    return replace(base, mean=mean, std=std, horizontal_flip=horizontal_flip, **chosen)


def are_fixed(images: ImageSource, preprocessing: Preprocessing | None) -> bool:
    """Whether no setting changes how these images become tensors: a transform does it, or they are tensors."""
    return images.is_raw or (preprocessing is not None and preprocessing.transform is not None)


def are_mirrored_alone(images: ImageSource, preprocessing: Preprocessing | None) -> bool:
    """Whether training sees the tensors of a transform for evaluation and their mirrors."""
    if images.is_raw or preprocessing is None:
        return False
    return preprocessing.transform is not None and preprocessing.train_transform is None


def refuse_unread_settings(config: StageConfig, images: ImageSource, preprocessing: Preprocessing | None) -> None:
    """Raise an error for settings of preprocessing that change nothing: of tensors, or beside the caller's own
    transforms.

    Args:
        config: settings of the user, before any default is filled in
    """
    unread = _set_by_user(config) if are_fixed(images, preprocessing) else []
    reason = f"beside {named('evaluation_transform')}, which does all preprocessing"
    if images.is_raw:
        reason = "on tensors of floats, which the model gets unchanged"
    if unread:
        names = ", ".join(map(named, unread))
        raise BadSetting(f"{named(unread[0])} has no effect {reason}", f"leave {names} out", setting=unread[0])


def transforms_of(config: StageConfig, images: ImageSource, declared: Preprocessing | None) -> Transforms:
    """Transforms of images: the caller's, none for tensors, else by the settings and the preprocessing."""
    preprocessing = preprocessing_by(dict(config), declared)
    whole = None if preprocessing is None else preprocessing.transform
    if preprocessing is None or (images.is_raw and (whole is None or isinstance(whole, ProcessorTransform))):
        return Transforms(nn.Identity(), nn.Identity(), preprocessing)
    if whole is None:
        evaluation = preprocessing.for_evaluation()
        train = evaluation if isinstance(config, PredictConfig) else preprocessing.for_training()
        return Transforms(train, evaluation, preprocessing, preprocessing.second_view())
    if are_mirrored_alone(images, preprocessing) and preprocessing.horizontal_flip:
        from torchvision.transforms import Compose, RandomHorizontalFlip  # they start slowly

        return Transforms(Compose([whole, RandomHorizontalFlip()]), whole, preprocessing, mirror)
    return Transforms(preprocessing.train_transform or whole, whole, preprocessing)


def _set_by_user(config: StageConfig) -> list[str]:
    """Settings of the preprocessing that a user sets."""
    return [name for name in _PREPARING if name in config.requested]
