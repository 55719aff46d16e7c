"""How images become tensors: by the transforms of a caller, else by the preprocessing of the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.batches import num_rows, shape_text
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
from tllib_ancon.models.output import structure_of
from tllib_ancon.models.preprocessing import channels_of, is_processor, preprocessing_of, preprocessing_of_processor
from tllib_ancon.runtime.errors import BadModel, BadSetting, named, one_line
from tllib_ancon.runtime.types import Options

StageConfig = AdaptConfig | PretrainConfig | PredictConfig
"""Settings of a stage: of images, of how they become tensors, and of the network that takes them."""

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

Augment = Callable[[Any], Any]
"""A batch of training tensors -> the same, augmented."""


@dataclass(frozen=True)
class _CheckedAugment:
    """An augmentation of the caller, whose errors are one line."""

    augment: Augment

    def __call__(self, batch: Any) -> Any:
        try:
            augmented = self.augment(batch)
        except Exception as error:  # it is the user's code
            raise BadSetting(
                f"{named('augment')} raises {type(error).__name__} ({one_line(error)})", "repair it", setting="augment"
            ) from error
        if not isinstance(augmented, type(batch)) or num_rows(augmented) != num_rows(batch):
            raise BadSetting(
                f"{named('augment')} gets {shape_text(batch)} and returns {structure_of(augmented)}",
                "it must return a batch of as many rows",
                setting="augment",
            )
        return augmented


PREPARING = ("norm_mean", "norm_std", *_GEOMETRY)
"""Settings of how images become tensors."""


@dataclass(frozen=True)
class Transforms:
    """Image -> tensor for training and for evaluation, and the network's preprocessing, if known."""

    train: Transform
    evaluation: Transform
    preprocessing: Preprocessing | None = None
    second_view: View | None = None  # training images -> another view of each
    augment: Augment | None = None  # a batch of training tensors -> the same, augmented


def preprocessing_by(settings: Options, declared: Preprocessing | None) -> Preprocessing | None:
    """The preprocessing by these settings, else the network's own; None without mean or standard deviation."""
    base = declared or Preprocessing((), ())
    mean = settings.get("norm_mean") or base.mean
    std = settings.get("norm_std") or base.std
    if not mean or not std:
        return None
    chosen = {name: settings[name] for name in _GEOMETRY if settings.get(name) is not None}
    return replace(base, mean=mean, std=std, horizontal_flip=not settings.get("no_hflip"), **chosen)


@dataclass(frozen=True)
class TransformRule:
    """What decides how images become tensors.

    Attributes:
        preprocessing: of the processor that the caller passes, else of the network; None where nothing declares it
        transforms: the caller's, which do all preprocessing
        augment: the caller's, a batch of training tensors -> the same, augmented
    """

    preprocessing: Preprocessing | None = None
    transforms: Transforms | None = None
    augment: Augment | None = None

    @classmethod
    def of_call(
        cls,
        train: Transform | None,
        evaluation: Transform | None,
        augment: Augment | None = None,
    ) -> TransformRule:
        """What a caller passes; an image processor of transformers for evaluation gives its settings to both."""
        if augment is not None:
            augment = _CheckedAugment(augment)
        if train is None and is_processor(evaluation):
            return cls(preprocessing_of_processor(evaluation), augment=augment)
        if train is None and evaluation is None:
            return cls(augment=augment)
        if train is None or evaluation is None:
            missing = "train_transform" if train is None else "evaluation_transform"
            raise BadSetting(
                f"{named(missing)} is needed as well",
                "pass one transform for training and one for evaluation",
                setting=missing,
            )
        return cls(transforms=Transforms(train, evaluation), augment=augment)

    def completed_by(self, network: nn.Module) -> TransformRule:
        """The same, with the preprocessing of the network where the caller passes none. It is derived here and nowhere
        else."""
        if self.preprocessing is not None:
            return self
        return replace(self, preprocessing=preprocessing_of(network))

    def are_fixed_for(self, images: Domain) -> bool:
        """Whether no setting changes how these images become tensors: the caller's transforms do it, or they are
        tensors."""
        return self.transforms is not None or images.is_raw

    def refuse_unread_settings(self, config: StageConfig, images: Domain) -> None:
        """Raise an error for settings of preprocessing that change nothing: of tensors, or beside the caller's own
        transforms.

        Args:
            config: settings of the user, before any default is filled in
        """
        if not self.are_fixed_for(images):
            return
        fields = type(config).model_fields
        for name in PREPARING:
            if name not in fields or getattr(config, name) in (None, fields[name].default):
                continue
            if images.is_raw:
                reason = "on tensors of floats, which the model gets unchanged; leave it out, or pass images as bytes"
            else:
                reason = f"beside {named('evaluation_transform')}, which does all preprocessing; leave one of them out"
            raise BadSetting(f"{named(name)} has no effect {reason}", setting=name)

    def transforms_of(self, config: StageConfig, network: nn.Module, images: Domain) -> Transforms:
        """Transforms of images: the caller's, none for tensors, else by the preprocessing."""
        preprocessing = preprocessing_by(dict(config), self.preprocessing)
        if self.transforms is not None:
            return replace(self.transforms, preprocessing=preprocessing, augment=self.augment)
        if images.is_raw or preprocessing is None:
            return Transforms(nn.Identity(), nn.Identity(), preprocessing, augment=self.augment)
        _require_channels(network, len(preprocessing.mean))
        evaluation = evaluation_transform(preprocessing)
        train = evaluation if isinstance(config, PredictConfig) else train_transform(preprocessing)
        return Transforms(train, evaluation, preprocessing, second_view(preprocessing), self.augment)


UNDECIDED = TransformRule()
"""Where a caller passes nothing and no network is known yet."""


def _require_channels(network: nn.Module, channels: int) -> None:
    """Raise an error for a network whose number of channels differs from the images'."""
    expected = channels_of(network.network if isinstance(network, NetworkClassifier) else network)
    if expected in (None, channels):
        return
    if expected in (1, 3):
        advice = (
            f"pass {named('norm_mean')} and {named('norm_std')} of {expected} value{'s' if expected > 1 else ''} each"
        )
    else:
        advice = f"pass {named('loader')}, which returns float tensors (C, H, W), or such tensors in Python"
    raise BadModel(f"the network takes images of {expected} channels, and images here get {channels}", advice)
