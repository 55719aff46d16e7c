"""Defaults that depend on a model, its images or this machine.

:func:`resolve` goes through a list of layers. Each is a pure function that gives defaults; the first layer that knows a
setting wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from tllib_ancon import methods
from tllib_ancon.config.adapt import CRITERIA_OF_AN_EPOCH, AdaptConfig
from tllib_ancon.config.model import ModelConfig
from tllib_ancon.config.optimization import RATES
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import as_tuple, defined, settings_of
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.transforms import second_view
from tllib_ancon.opening.facts import NOT_OPENED, Facts
from tllib_ancon.opening.transforms import StageConfig, preprocessing_by
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import BadModel, BadSetting, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import counted
from tllib_ancon.runtime.types import Options

Config = TypeVar("Config", bound=StageConfig)

USUAL_BATCH = 64
SMALL = 64
"""Side in pixels below which networks are trained on shifted images rather than on random resized crops."""
LARGEST_SHIFT = 4
"""Of these images in pixels: an eighth of the side, as for CIFAR-10, and no more than this. Grey images, which often
show a character in the middle, are shifted by a sixteenth (``benchmarks/tried.md``)."""
CAREFUL_RATE = 0.001
"""Of SGD for a network that normalises by statistics of other images: it diverges at the usual rate."""

USUAL_NETWORK: Options = {
    "arch": "resnet18",
    "arch_option": (),
    "bottleneck_dim": 256,
    "no_pool": False,
}
"""Settings of a network that no run records."""

USUAL_IMAGES: Options = {"image_size": 224, "resize_size": 224, "crop_fraction": 0.875}
"""Settings of images that neither a run nor a network's metadata tell."""

INHERITED = (*USUAL_NETWORK, *USUAL_IMAGES, "norm_mean", "norm_std", "val_resizing")
"""Settings that a later stage takes from the run that trained the model. The network's must not contradict it."""

FOLLOWED = ("train_resizing", "no_hflip")
"""Settings that a later stage takes from that run and may change without a note."""


def resolve(config: Config, facts: Facts) -> tuple[Config, list[Note]]:
    """Fill in every setting of a run that is not set.

    ``norm_mean`` and ``norm_std`` stay None where the network knows them: they travel with it, in its
    :class:`~tllib_ancon.data.transforms.Preprocessing`.

    Returns: the settings, and notes for the user: what was decided

    Raises:
        UserError: settings that contradict the source model's run; a network whose preprocessing nothing tells
    """
    _require_those_of_the_source(config, facts)
    settings = defined(dict(config))
    for layer in _layers_of(config):
        settings = defined(layer(settings, facts)) | settings
    _require_consistent(config, settings, facts)
    fields = type(config).model_fields.keys() & config.to_dict().keys()  # those that the method reads
    filled = {name: value for name, value in settings.items() if name in fields and value != getattr(config, name)}
    return cast(Config, config.replace(**filled)), _notes(config, settings, facts)


# The layers: settings that are decided, and the facts -> defaults of others.


def _recorded_run(settings: Options, facts: Facts) -> Options:
    return facts.recorded_settings


def _source_run(settings: Options, facts: Facts) -> Options:
    names = (*INHERITED, *FOLLOWED)
    if facts.is_whole:
        names = tuple(name for name in names if name not in settings_of(ModelConfig))
    return {name: as_tuple(facts.source_settings.get(name)) for name in names}


def _usual_network(settings: Options, facts: Facts) -> Options:
    return {} if facts.is_whole else USUAL_NETWORK


def _usual_source_images(settings: Options, facts: Facts) -> Options:
    preprocessing = facts.images.preprocessing
    if preprocessing is not None and 0 < preprocessing.image_size < SMALL:  # a digit network, which takes no other size
        return {**USUAL_IMAGES, "image_size": preprocessing.image_size}
    return USUAL_IMAGES


def _geometry_of_the_user(settings: Options, facts: Facts) -> Options:
    """Where only the size of the images is known, they are resized to it, and shifted in training if they are small."""
    if facts.images.are_fixed or facts.images.preprocessing is not None or settings.get("crop_fraction") is not None:
        return {}
    image_size = settings.get("image_size") or facts.images.side
    if image_size is None:
        raise _unknown_preprocessing()
    usual = {"image_size": image_size, "crop_fraction": 1.0, "val_resizing": "default"}
    if image_size < SMALL:
        shift = image_size // 8
        if len(settings.get("norm_mean") or ()) == 1:  # grey
            shift = max(1, image_size // 16)
        return {**usual, "train_resizing": "cen.crop", "padding": min(LARGEST_SHIFT, shift)}
    return {**usual, "train_resizing": "default", "padding": 0}


def _metadata_of_the_network(settings: Options, facts: Facts) -> Options:
    preprocessing = facts.images.preprocessing
    if facts.images.are_fixed or preprocessing is None:
        return {}
    return {
        "image_size": preprocessing.image_size or None,
        "crop_fraction": preprocessing.crop_fraction,
        "resize_size": preprocessing.resize_size or None,
        "val_resizing": preprocessing.val_resizing,
    }


def _layout_of_the_data(settings: Options, facts: Facts) -> Options:
    if facts.images.are_fixed:
        return {}
    return {"val_resizing": facts.images.resizing, "train_resizing": facts.images.resizing}


def _usual_images(settings: Options, facts: Facts) -> Options:
    if facts.images.are_fixed:
        return {}
    return {**USUAL_IMAGES, "padding": 0, "no_hflip": False}


def _views_of_the_source(settings: Options, facts: Facts) -> Options:
    if settings.get("no_hflip"):
        return {"views": 1}
    return {"views": facts.source_settings.get("views") or 1}


def _optimizer(settings: Options, facts: Facts) -> Options:
    if facts.network.normalises_by_layer:
        return {"optimizer": "adamw"}
    return {"optimizer": "sgd"}


def _step_change(settings: Options, facts: Facts) -> Options:
    if settings["optimizer"] != "sgd" or "lr" in settings:
        return {}
    return {"step_change": methods.training_defaults(settings["method"]).get("step_change")}


def _learning_rate(settings: Options, facts: Facts) -> Options:
    if settings["optimizer"] == "sgd" and settings["batch_norm"] == "source":
        return {"lr": CAREFUL_RATE}
    return {"lr": RATES[settings["optimizer"]]}


def _frozen_parameters(settings: Options, facts: Facts) -> Options:
    if facts.network.is_partly_frozen:
        return {"adapted": "as-given"}
    return {}


def _method(settings: Options, facts: Facts) -> Options:
    defaults = methods.training_defaults(settings["method"])
    return {
        "adapted": defaults.get("adapted", "all-but-head"),
        "views": defaults.get("views", 1) if _augments(settings, facts) else 1,
    }


def _batch_size(settings: Options, facts: Facts) -> Options:
    if facts.images is NOT_OPENED:
        return {}
    share = 0.0
    if settings["criterion"] in CRITERIA_OF_AN_EPOCH:
        share = settings["hold_out"]
    adapted, _ = hold_out(facts.images.count, share, settings["seed"])
    in_each_process = len(adapted) // processes.world_size()
    return {"batch_size": min(USUAL_BATCH, max(in_each_process, 1))}


def _machine(settings: Options, facts: Facts) -> Options:
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return {"mixed_precision": "bf16"}
    return {"mixed_precision": "no"}


Layer = Callable[[Options, Facts], Options]

_IMAGES: tuple[Layer, ...] = (
    _geometry_of_the_user,
    _metadata_of_the_network,
    _layout_of_the_data,
    _usual_images,
)
_PRETRAIN: tuple[Layer, ...] = (_recorded_run, _usual_network, _usual_source_images, *_IMAGES, _machine)
_PREDICT: tuple[Layer, ...] = (_source_run, _usual_network, *_IMAGES, _views_of_the_source)
_ADAPT: tuple[Layer, ...] = (
    _recorded_run,
    _source_run,
    _usual_network,
    *_IMAGES,
    _optimizer,
    _step_change,
    _learning_rate,
    _frozen_parameters,
    _method,
    _batch_size,
    _machine,
)


def _layers_of(config: StageConfig) -> tuple[Layer, ...]:
    if isinstance(config, PretrainConfig):
        return _PRETRAIN
    if isinstance(config, PredictConfig):
        return _PREDICT
    return _ADAPT


# What does not fit together, and what the user is told.


def _require_those_of_the_source(config: StageConfig, facts: Facts) -> None:
    """Raise an error for settings that contradict the source model, or that a whole network does not read."""
    for name, setting in settings_of(ModelConfig).items():
        if facts.is_whole and getattr(config, name) not in (setting.default, facts.checkpoint):
            raise BadSetting(
                f"{named(name)} is for checkpoints; a model that is given is taken as it is",
                "leave it out",
                setting=name,
            )
    for name, (value, recorded_value) in _differences_from_the_source(config, facts).items():
        if name in USUAL_NETWORK:
            raise BadSetting(
                f"{named(name, value)} contradicts the run that trained {facts.checkpoint}: there it is "
                f"{recorded_value}",
                "leave it out",
                setting=name,
            )


def _differences_from_the_source(config: StageConfig, facts: Facts) -> dict[str, tuple[str, str]]:
    """Setting -> the user's value and that of the run that trained the model, in words, where they differ."""
    recorded = _source_run({}, facts)
    differing = {}
    for name in INHERITED:
        value = getattr(config, name, None)
        recorded_value = recorded.get(name)
        if value is not None and recorded_value is not None and value != recorded_value:
            differing[name] = (_shown(value), _shown(recorded_value))
    return differing


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)


def _require_consistent(config: StageConfig, settings: Options, facts: Facts) -> None:
    if _lacks_normalisation(settings, facts):
        raise _unknown_preprocessing()
    if isinstance(config, PredictConfig) and config.views == 2 and settings.get("no_hflip"):
        raise BadSetting(
            f"{named('views', '2')} mirrors the images, and this run was trained with {named('no_hflip')}. Leave "
            f"{named('views')} out",
            setting="views",
        )
    if not isinstance(config, AdaptConfig):
        return
    if config.views == 2 and not _augments(settings, facts):
        raise BadSetting(
            f"{named('views', '2')} needs an augmentation: this training has none. Leave it out, or let it mirror",
            setting="views",
        )
    step_change: float | None = config.step_change
    if step_change is not None and settings["optimizer"] != "sgd":
        raise BadSetting(
            f"{named('step_change', step_change)} fits the learning rate of SGD, and "
            f"{named('optimizer', settings['optimizer'])} trains here",
            f"pass {named('optimizer', 'sgd')}, or leave {named('step_change')} out",
            setting="step_change",
        )


def _unknown_preprocessing() -> BadModel:
    return BadModel(
        "the preprocessing of this network is unknown",
        f"pass {named('image_size')}, {named('norm_mean')} and {named('norm_std')}, of a model that normalises images "
        f"itself 0 and 1, or 0 and {1 / 255:.6f} if it takes values from 0 to 255; or in Python evaluation_transform, "
        "such as a library's processor, and if training augments otherwise train_transform",
        setting="norm_mean",
    )


def _notes(config: StageConfig, settings: Options, facts: Facts) -> list[Note]:
    images = facts.images
    notes = []
    for name, (value, recorded_value) in _differences_from_the_source(config, facts).items():
        text = f"{named(name, value)} is used; the run that trained {facts.checkpoint} had {recorded_value}"
        notes.append(Note("other-than-source", text, name, level="warning"))
    padding = settings.get("padding")
    is_assumed = config.padding is None and not facts.recorded_settings
    if padding and is_assumed and not images.are_fixed and _trains(config, settings):
        shift = counted(padding, "pixel")
        text = f"training shifts images at random by up to {shift}; {named('padding', 0)} does not"
        notes.append(Note("shifted-images", text, "padding"))
    if images.tensor_range is not None and images.tensor_range[0] >= 0:
        least, most = images.tensor_range
        text = f"the images are tensors with values from {least:.3g} to {most:.3g}, which the model gets unchanged"
        action = "if it was trained on normalised images, normalise them, or pass them as bytes"
        notes.append(Note("unchanged-tensors", text, action=action, level="warning"))
    return notes


def _trains(config: StageConfig, settings: Options) -> bool:
    if isinstance(config, AdaptConfig):
        return methods.method_class(settings["method"]).trains
    return isinstance(config, PretrainConfig)


def _lacks_normalisation(settings: Options, facts: Facts) -> bool:
    if facts.images.are_fixed:
        return False
    return preprocessing_by(settings, facts.images.preprocessing) is None


def _augments(settings: Options, facts: Facts) -> bool:
    """Whether training sees another view of an image each time."""
    if facts.images is NOT_OPENED:
        return True
    if facts.images.are_fixed:
        return facts.images.are_mirrored and not settings.get("no_hflip")
    prepared = preprocessing_by(settings, facts.images.preprocessing)
    return prepared is not None and second_view(prepared) is not None
