"""How images become tensors: by the transforms of a caller, else by the preprocessing of the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.transforms import (
    Preprocessing,
    Transform,
    View,
    evaluation_transform,
    second_view,
    train_transform,
)
from tllib_ancon.models.classifier import NetworkClassifier
from tllib_ancon.models.preprocessing import channels_of, is_processor, preprocessing_of, preprocessing_of_processor
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.types import Options

ImagesConfig = AdaptConfig | PretrainConfig | PredictConfig
"""Settings of images, of how they become tensors, and of the network that takes them."""

_GEOMETRY = (
    "image_size",
    "crop_fraction",
    "val_resizing",
    "resize_size",
    "train_resizing",
    "scale",
    "ratio",
    "padding",
    "rotation",
)
"""Settings of a :class:`~tllib_ancon.data.transforms.Preprocessing` by the same names."""

PREPARING = ("norm_mean", "norm_std", *_GEOMETRY)
"""Settings of how images become tensors."""

READING = ("pixel_range", "bands")
"""Settings of how files become images."""


@dataclass(frozen=True)
class Transforms:
    """Image -> tensor for training and for evaluation, and the network's preprocessing, if known."""

    train: Transform
    evaluation: Transform
    preprocessing: Preprocessing | None = None
    second_view: View | None = None  # training images -> another view of each
    augment: Callable[[Any], Any] | None = None  # a batch of training tensors -> the same, augmented


TransformSource = Transforms | Preprocessing | None
"""What decides how images become tensors: transforms of a caller, or the preprocessing of a processor or a network."""


def passed_transforms(train: Transform | None, evaluation: Transform | None) -> TransformSource:
    """What a caller passes; an image processor of transformers for evaluation gives its settings to both."""
    if train is None and is_processor(evaluation):
        return preprocessing_of_processor(evaluation)
    if train is None and evaluation is None:
        return None
    if train is None or evaluation is None:
        missing = "train_transform" if train is None else "evaluation_transform"
        raise UserError(f"`{missing}` is needed as well; pass one transform for training and one for evaluation")
    return Transforms(train, evaluation)


def transform_source_of(network: nn.Module, source: TransformSource = None) -> TransformSource:
    """What a caller passes, beside or else the preprocessing of the network, which is derived here and nowhere else."""
    if isinstance(source, Preprocessing):
        return source
    declared = preprocessing_of(network)
    if source is None:
        return declared
    return replace(source, preprocessing=declared)


def declared_preprocessing(source: TransformSource) -> Preprocessing | None:
    if isinstance(source, Transforms):
        return source.preprocessing
    return source


def preprocessing_by(settings: Options, declared: Preprocessing | None) -> Preprocessing | None:
    """The preprocessing by these settings, else the network's own; None without mean or standard deviation."""
    base = declared or Preprocessing((), ())
    mean = settings.get("norm_mean") or base.mean
    std = settings.get("norm_std") or base.std
    if not mean or not std:
        return None
    chosen = {name: settings[name] for name in _GEOMETRY if settings.get(name) is not None}
    return replace(base, mean=mean, std=std, horizontal_flip=not settings.get("no_hflip"), **chosen)


def refuse_unread_preprocessing(config: ImagesConfig, images: Domain, source: TransformSource = None) -> None:
    """Raise an error for settings of preprocessing that change nothing: of tensors, or beside the caller's own
    transforms.

    Args:
        config: settings of the user, before any default is filled in
    """
    if not images.holds_tensors and not isinstance(source, Transforms):
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


def transforms_of(config: ImagesConfig, network: nn.Module, images: Domain, source: TransformSource) -> Transforms:
    """Transforms of images: the caller's, none for tensors, else by the preprocessing."""
    preprocessing = preprocessing_by(dict(config), declared_preprocessing(source))
    if isinstance(source, Transforms):
        return replace(source, preprocessing=preprocessing)
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
