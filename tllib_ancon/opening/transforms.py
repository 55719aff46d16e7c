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
from tllib_ancon.data.transforms import (
    Preprocessing,
    RandomlyMirrored,
    Transform,
    View,
    evaluation_transform,
    mirror,
    second_view,
    train_transform,
)
from tllib_ancon.models.output import structure_of
from tllib_ancon.models.preprocessing import (
    ProcessorTransform,
    is_processor,
    preprocessing_of,
    preprocessing_of_processor,
)
from tllib_ancon.runtime.errors import BadSetting, named, one_line
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
        if not isinstance(augmented, type(batch)) or len(augmented) != len(batch):
            raise BadSetting(
                f"{named('augment')} gets {tuple(batch.shape)} and returns {structure_of(augmented)}",
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


def set_by_user(config: StageConfig) -> list[str]:
    """Settings of the preprocessing that a user sets."""
    fields = type(config).model_fields
    return [name for name in PREPARING if name in fields and getattr(config, name) not in (None, fields[name].default)]


def preprocessing_by(settings: Options, declared: Preprocessing | None) -> Preprocessing | None:
    """The preprocessing by these settings, else the network's own; None without mean or standard deviation."""
    base = declared or Preprocessing((), ())
    if base.processor is not None:
        return replace(base, horizontal_flip=not settings.get("no_hflip"))
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
        train: the caller's transform for training. Default: the tensors of evaluation and their mirrors
        evaluation: the caller's transform, which does all preprocessing
        augment: the caller's, a batch of training tensors -> the same, augmented
    """

    preprocessing: Preprocessing | None = None
    train: Transform | None = None
    evaluation: Transform | None = None
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
        if train is not None and evaluation is None:
            raise BadSetting(
                f"{named('evaluation_transform')} is needed as well",
                "pass one transform for training and one for evaluation",
                setting="evaluation_transform",
            )
        if not is_processor(evaluation):
            return cls(None, train, evaluation, augment)
        if train is None:
            return cls(preprocessing_of_processor(evaluation), augment=augment)
        return cls(None, train, ProcessorTransform(evaluation), augment)

    def completed_by(self, network: nn.Module, config: StageConfig) -> TransformRule:
        """The same, with the preprocessing of the network where the caller passes none. It is derived here and nowhere
        else. Settings replace an image processor of the network as a whole."""
        if self.preprocessing is not None:
            return self
        declared = preprocessing_of(network)
        if declared is not None and declared.processor is not None and set_by_user(config):
            declared = None
        return replace(self, preprocessing=declared)

    def are_fixed_for(self, images: ImageSource) -> bool:
        """Whether no setting changes how these images become tensors: a transform of the caller or a processor does it,
        or they are tensors."""
        return images.is_raw or self._whole(images) is not None

    def mirrors(self, images: ImageSource) -> bool:
        """Whether training sees the tensors of evaluation and their mirrors."""
        return not images.is_raw and self.train is None and self._whole(images) is not None

    def _whole(self, images: ImageSource) -> Transform | None:
        """The transform that does all preprocessing, of the caller or of a processor; None where settings do it."""
        if self.evaluation is not None or self.preprocessing is None:
            return self.evaluation
        if images.is_raw or self.preprocessing.processor is None:
            return None
        return ProcessorTransform(self.preprocessing.processor)

    def refuse_unread_settings(self, config: StageConfig, images: ImageSource) -> None:
        """Raise an error for settings of preprocessing that change nothing: of tensors, or beside the caller's own
        transforms.

        Args:
            config: settings of the user, before any default is filled in
        """
        unread = set_by_user(config) if self.are_fixed_for(images) else []
        reason = f"beside {named('evaluation_transform')}, which does all preprocessing"
        if images.is_raw:
            reason = "on tensors of floats, which the model gets unchanged"
        if unread:
            names = ", ".join(map(named, unread))
            raise BadSetting(f"{named(unread[0])} has no effect {reason}", f"leave {names} out", setting=unread[0])

    def transforms_of(self, config: StageConfig, images: ImageSource) -> Transforms:
        """Transforms of images: the caller's, none for tensors, else by the preprocessing."""
        preprocessing = preprocessing_by(dict(config), self.preprocessing)
        whole = self._whole(images)
        if whole is not None and self.mirrors(images) and not config.no_hflip:
            return Transforms(RandomlyMirrored(whole), whole, preprocessing, mirror, self.augment)
        if whole is not None:
            return Transforms(self.train or whole, whole, preprocessing, augment=self.augment)
        if images.is_raw or preprocessing is None:
            return Transforms(nn.Identity(), nn.Identity(), preprocessing, augment=self.augment)
        evaluation = evaluation_transform(preprocessing)
        train = evaluation if isinstance(config, PredictConfig) else train_transform(preprocessing)
        return Transforms(train, evaluation, preprocessing, second_view(preprocessing), self.augment)


UNDECIDED = TransformRule()
"""Where a caller passes nothing and no network is known yet."""
