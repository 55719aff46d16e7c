"""Every default that depends on a model, images or this machine: :func:`resolve` fills them in, once for each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.optimization import RATES
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import settings_of
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import default_resizing
from tllib_ancon.data.pixels import chosen_range
from tllib_ancon.data.transforms import Preprocessing, second_view
from tllib_ancon.models.classifier import normalises_by_layer_alone, preprocessing_of
from tllib_ancon.models.foundation import is_processor, preprocessing_of_processor
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.progress import Progress

if TYPE_CHECKING:
    from tllib_ancon.training.trained import TrainedModel

Config = TypeVar("Config", bound=AdaptConfig | PretrainConfig | PredictConfig)

USUAL_BATCH = 64
SMALL = 64
"""Side in pixels below which networks are trained on shifted images rather than on random resized crops."""

ASSUMED: dict[str, Any] = {
    "arch": "resnet18",
    "arch_option": (),
    "bottleneck_dim": 256,
    "bottleneck_dropout": 0.0,
    "no_pool": False,
    "image_size": 224,
    "resize_size": 224,
    "crop_fraction": 0.875,
}
"""Settings of a model and its images that no run records."""

OF_THE_NETWORK = ("image_size", "resize_size", "crop_fraction")
"""Settings that a trained network's own metadata decide before anything is assumed."""

INHERITED = (*ASSUMED, "norm_mean", "norm_std", "val_resizing")
"""Settings that a later stage takes from the run that trained the model, and must not contradict."""

FOLLOWED = ("train_resizing", "no_hflip", "bands")
"""Settings that a later stage takes from that run and may change."""

OF_IMAGES = (
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

Transform = Callable[[Any], Any]
"""What the data hold -> tensor (C, H, W)."""


@dataclass(frozen=True)
class Transforms:
    """Image -> tensor for training and for evaluation, and the network's preprocessing, if known."""

    train: Transform
    evaluation: Transform
    preprocessing: Preprocessing | None = None
    second_view: Callable[[Tensor], Tensor] | None = None  # training images -> another view of each
    augment: Callable[[Tensor], Tensor] | None = None  # a batch of training tensors -> the same, augmented


Given = Transforms | Preprocessing | None
"""Transforms or processor settings that a user passes in place of the network's metadata."""


def given_transforms(train: Transform | None, evaluation: Transform | None) -> Given:
    """What a caller passes; an image processor of transformers for evaluation gives its settings to both."""
    if train is None and is_processor(evaluation):
        return preprocessing_of_processor(evaluation)
    if train is None and evaluation is None:
        return None
    if train is None or evaluation is None:
        missing = "train_transform" if train is None else "evaluation_transform"
        raise UserError(f"`{missing}` is needed as well; pass one transform for training and one for evaluation")
    return Transforms(train, evaluation)


def of_the_model(config: Config, start: TrainedModel) -> dict[str, Any]:
    """Settings of a model and its images: given, else recorded, else :data:`ASSUMED`; a contradiction is an error."""
    read, of_networks, settings = config.to_dict(), settings_of(ModelConfig), {}
    for name, field in of_networks.items():
        if start.is_whole and getattr(config, name) not in (field.default, start.checkpoint):
            raise UserError(f"`{name}` is for checkpoints; a model that is given is taken as it is; leave it out")
    for name in INHERITED:
        if name not in read or (start.is_whole and name in of_networks):
            continue
        given, there = getattr(config, name), start.recorded.get(name)
        there = tuple(there) if isinstance(there, list) else there
        if None not in (given, there) and given != there and not (isinstance(config, StartConfig) and config.override):
            given, there = (" ".join(map(str, v)) if isinstance(v, tuple) else v for v in (given, there))
            raise UserError(
                f"`{name}={given}` contradicts the run that trained {start.checkpoint}: there it is {there}; leave it "
                "out, or pass `override=True`"
            )
        decided_later = name in OF_THE_NETWORK and not isinstance(config, PretrainConfig)
        usual = None if decided_later else ASSUMED.get(name)
        settings[name] = next((value for value in (given, there, usual) if value is not None), None)
    return {name: start.recorded.get(name) for name in FOLLOWED} | settings


def resolve(
    config: Config,
    start: TrainedModel,
    network: nn.Module | None = None,
    images: Domain | None = None,
    given: Given = None,
    recorded: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """Fill in every setting of a run that is not given.

    Args:
        config: settings of the user
        start: trained model, whose run decides how its images are prepared
        network: loaded network. Default: what depends on it is filled in as for a usual one
        images: images of the run. Default: their settings are left out
        given: transforms or preprocessing that the caller passes in place of the network's own
        recorded: ``config.json`` of the run that continues; it decides what is not given

    ``norm_mean`` and ``norm_std`` stay None where the network knows them: they travel with it, in its
    :class:`~tllib_ancon.data.transforms.Preprocessing`.

    Raises:
        UserError: settings that contradict the model's run; a network whose preprocessing nothing tells
    """
    now = {name: value for name, value in dict(config).items() if value is not None}

    def fill(**defaults: Any) -> None:
        now.update({name: value for name, value in defaults.items() if value is not None and name not in now})

    fill(**of_the_model(config, start))
    augments = True
    if images is not None:
        known, side = known_preprocessing(network, given), images.images.side
        fixed = isinstance(given, Transforms) or images.holds_tensors  # by the caller
        unknown = known is None and not fixed and "crop_fraction" not in now
        if unknown:
            fill(image_size=side or ASSUMED["image_size"], crop_fraction=1.0, val_resizing="default")
            small = now["image_size"] < SMALL
            fill(train_resizing="cen.crop" if small else "default", padding=4 if small else 0)
        known, resizing = known or Preprocessing((), ()), default_resizing(config.data)
        fill(image_size=known.image_size or ASSUMED["image_size"], crop_fraction=known.crop_fraction)
        fill(resize_size=known.resize_size or ASSUMED["resize_size"], val_resizing=known.val_resizing or resizing)
        fill(train_resizing=resizing, padding=0, no_hflip=False)
        show = Progress(config.quiet).line
        if known.assumed and not fixed and "norm_mean" not in now:
            show(known.assumed)
        prepared = preprocessing_by(now, known)
        if prepared is None and not fixed:
            raise UserError(
                "the preprocessing of this network is unknown; pass `evaluation_transform`, to adapt also "
                "`train_transform`, or pass `image_size`, `norm_mean` and `norm_std` (0 and 1 for a model that "
                "normalises images itself)"
            )
        if unknown:
            learned = "shifted by up to 4 pixels" if small else "cropped at random"
            shown = f"resized to {now['image_size']} × {now['image_size']} pixels, in training {learned}"
            show(f"the preprocessing of this network is unknown; images are {shown}")
        values = images.pixel_values()
        of_the_run = images.images.decoding.pixel_range or start.recorded.get("pixel_range")
        pixel_range, notes = chosen_range(values, config.pixel_range, of_the_run)
        fill(pixel_range=pixel_range)
        for line in [*notes, *values.lines(pixel_range, now.get("bands"))]:
            show(line)
        augments = prepared is not None and not fixed and second_view(prepared) is not None
    if isinstance(config, PredictConfig):
        if config.views == 2 and now.get("no_hflip"):
            raise UserError("`views=2` mirrors the images, and this run was trained with `no_hflip`. Leave `views` out")
        fill(views=1 if now.get("no_hflip") else start.recorded.get("views") or 1)
    if isinstance(config, AdaptConfig):
        by_method = {"adapted": "all-but-head", "views": 1, **methods.training_defaults(config.method)}
        if config.views == 2 and not augments:
            raise UserError("`views=2` needs an augmentation: this training has none. Leave it out, or let it mirror")
        fill(optimizer="adamw" if network is not None and normalises_by_layer_alone(network) else "sgd")
        if now["optimizer"] != "sgd" and "step_change" in now:
            raise UserError(
                f"`step_change={config.step_change}` fits the learning rate of SGD, and `optimizer={now['optimizer']}` "
                "trains here; pass `optimizer=sgd`, or leave `step_change` out"
            )
        if now["optimizer"] == "sgd" and config.lr is None:
            fill(step_change=by_method.get("step_change"))
        # A network that normalises by statistics of other images diverges at SGD's usual rate.
        rate = 0.001 if (now["optimizer"], config.batch_norm) == ("sgd", "source") else RATES[now["optimizer"]]
        frozen = network is not None and not all(one.requires_grad for one in network.parameters())
        fill(lr=rate, adapted="as-given" if frozen else by_method["adapted"])
        fill(views=by_method["views"] if augments else 1)
        if images is not None:
            adapted = len(hold_out(len(images), config.held_out_share, config.seed)[0])
            fill(batch_size=min(USUAL_BATCH, max(adapted // processes.world_size() // config.accumulation_steps, 1)))
    if network is not None and not isinstance(config, PredictConfig):
        modules = [*network.modules()]  # few convolutions or few weights do not justify other rounding
        pools = any(isinstance(module, nn.MaxPool2d) for module in modules)
        fill(
            mixed_precision="bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "no",
            channels_last=pools or sum(isinstance(module, nn.Conv2d) for module in modules) >= 8,
            fused=sum(parameter.numel() for parameter in network.parameters()) >= 10**6,
        )
    filled = {n: recorded.get(n, value) for n, value in now.items() if value != getattr(config, n)}
    return cast(Config, config.replace(**filled))


def known_preprocessing(network: nn.Module | None, given: Given = None) -> Preprocessing | None:
    if isinstance(given, Preprocessing):
        return given
    return None if network is None else preprocessing_of(network)


def preprocessing_by(settings: Mapping[str, Any], known: Preprocessing | None) -> Preprocessing | None:
    """The preprocessing by these settings, else the network's own; None without mean or standard deviation."""
    known = known or Preprocessing((), ())
    mean, std = settings.get("norm_mean") or known.mean, settings.get("norm_std") or known.std
    chosen = {name: settings[name] for name in OF_IMAGES if settings.get(name) is not None}
    flip = not settings.get("no_hflip")
    return replace(known, mean=mean, std=std, horizontal_flip=flip, **chosen) if mean and std else None
