"""Defaults that depend on a method, a model, its images or this machine.

They are one ladder, in this order: user, method, continued run, run of the source model, model, images, machine, field.
:data:`LADDER` lists what each of them decides. The first that knows a setting wins. Which parameters a method trains
by default is decided below the model, whose frozen ones stay so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.model import ModelConfig
from tllib_ancon.config.optimization import RATES
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import Settings, as_tuple, defined, settings_of
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layouts import layout_of
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.transforms import KEEP_RATIO, Preprocessing
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.models.preprocessing import USUAL_SIDE
from tllib_ancon.models.references import ModelRef
from tllib_ancon.opening.transforms import StageConfig, are_fixed, are_mirrored_alone, preprocessing_by
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import BadModel, BadSetting, named
from tllib_ancon.runtime.types import Options

Config = TypeVar("Config", bound=StageConfig)

USUAL_BATCH = 64
SMALL = 64
"""Side in pixels below which networks are trained on shifted images rather than on random resized crops."""
LARGEST_SHIFT = 4
"""Of these images in pixels: an eighth of the side, as for CIFAR-10, and no more than this."""
CAREFUL_RATE = 0.001
"""Of SGD for a network that normalises by statistics of other images: it diverges at the usual rate."""

USUAL_NETWORK: Options = {
    "arch": "resnet18",
    "arch_option": (),
    "bottleneck_dim": 256,
    "no_pool": False,
}
"""Settings of a network that no run records."""

INHERITED = (
    *USUAL_NETWORK,
    "image_size",
    "crop_fraction",
    "norm_mean",
    "norm_std",
    "val_resizing",
    "train_resizing",
    "no_hflip",
)
"""Settings that a later stage takes from the run that trained the model. The network's must not contradict it."""


@dataclass(frozen=True)
class Facts:
    """What defaults depend on, besides the settings of the user.

    Attributes:
        source: the trained model, whose run decides how its images are prepared
        network: its loaded network
        images: those of the run
        preprocessing: that of the transforms that the user passes, else of the network
        recorded: ``config.json`` of the run that continues; empty for a new one
    """

    source: ModelRef
    network: nn.Module
    images: ImageSource
    preprocessing: Preprocessing | None = None
    recorded: Options = field(default_factory=dict)

    @property
    def images_are_fixed(self) -> bool:
        """Whether no setting changes how the images become tensors."""
        return are_fixed(self.images, self.preprocessing)


def network_settings(config: StageConfig, source: ModelRef) -> Options:
    """The settings that build the network of a model, with every default filled in.

    Raises:
        UserError: settings that contradict the source model's run
    """
    _require_the_network_of_the_source(config, source)
    return {**USUAL_NETWORK, **_settings_of_run(source), **defined(dict(config))}


def resolve(config: Config, facts: Facts) -> tuple[Config, Mapping[str, str]]:
    """Fill in every setting of a run that is not set.

    ``norm_mean`` and ``norm_std`` stay None where the network knows them: they travel with it, in its
    :class:`~tllib_ancon.data.transforms.Preprocessing`.

    Returns: the settings; and by the name of a setting the layer that decided it

    Raises:
        UserError: settings that contradict the source model's run; a network whose preprocessing nothing tells
    """
    _require_the_network_of_the_source(config, facts.source)
    fields = defined(dict(config))
    decided = defined(config.requested)
    layers = dict.fromkeys(decided, "user")
    for rung in LADDER:
        if isinstance(config, rung.stages):
            decisions = {
                name: value
                for name, value in rung.decide(fields | decided, facts).items()
                if value is not None or name not in type(config).model_fields  # an option may be None
            }
            layers = dict.fromkeys(decisions, rung.layer) | layers
            decided = decisions | decided
    _require_consistent(config, fields | decided, facts)
    read = {name: value for name, value in decided.items() if name in dict(config) or layers[name] == "method"}
    return type(config)(**read), dict.fromkeys(fields, "field") | layers


# What a layer decides: settings that are decided, and the facts -> others.


def _method(settings: Options, facts: Facts) -> Options:
    """The options of the method, and its defaults of training but for the parameters."""
    method = settings["method"]
    return {**methods.all_options(method, {}), **methods.training_defaults(method), "adapted": None}


def _recorded_run(settings: Options, facts: Facts) -> Options:
    return {name: value for name, value in facts.recorded.items() if name not in settings}


def _source_run(settings: Options, facts: Facts) -> Options:
    return _settings_of_run(facts.source)


def _settings_of_run(source: ModelRef) -> Options:
    names = INHERITED
    if source.is_whole:
        names = tuple(name for name in names if name not in settings_of(ModelConfig))
    return defined({name: as_tuple(source.recorded_settings.get(name)) for name in names})


def _views_of_the_source_run(settings: Options, facts: Facts) -> Options:
    if settings.get("no_hflip"):
        return {"views": 1}
    return {"views": facts.source.recorded_settings.get("views") or 1}


def _metadata_of_the_network(settings: Options, facts: Facts) -> Options:
    preprocessing = facts.preprocessing
    if facts.images_are_fixed or preprocessing is None:
        return {}
    return {
        "image_size": preprocessing.image_size or None,
        "val_resizing": preprocessing.val_resizing,
    }


def _usual_network(settings: Options, facts: Facts) -> Options:
    return {} if facts.source.is_whole else USUAL_NETWORK


def _size_of_the_images(settings: Options, facts: Facts) -> Options:
    """Where only the size of the images is known, they are resized to it, and shifted in training if they are small."""
    if facts.images_are_fixed or facts.preprocessing is not None:
        return {}
    image_size = settings.get("image_size") or facts.images.reader.side
    if image_size is None:
        return {}
    usual = {"image_size": image_size, "val_resizing": "default"}
    if image_size >= SMALL:
        return {**usual, "train_resizing": "default", "padding": 0}
    return {**usual, "train_resizing": "cen.crop", "padding": min(LARGEST_SHIFT, image_size // 8)}


def _layout_of_the_data(settings: Options, facts: Facts) -> Options:
    if facts.images_are_fixed:
        return {}
    resizing = KEEP_RATIO
    if settings.get("data"):
        resizing = layout_of(settings["data"]).resizing
    return {"val_resizing": resizing, "train_resizing": resizing}


def _usual_images(settings: Options, facts: Facts) -> Options:
    if facts.images_are_fixed:
        return {}
    usual = {"padding": 0, "no_hflip": False}
    if facts.preprocessing is None:  # no size suits every network
        return usual
    return {**usual, "image_size": USUAL_SIDE}


def _training_of_the_network(settings: Options, facts: Facts) -> Options:
    """AdamW for a network with layer-norm and no batch-norm, as transformers and ConvNeXt, which it trains best. What
    is frozen stays so."""
    training = {"optimizer": "sgd"}
    has_layer_norm = any(isinstance(module, nn.LayerNorm) for module in facts.network.modules())
    has_batch_norm = any(isinstance(module, BATCH_NORMS) for module in facts.network.modules())
    if has_layer_norm and not has_batch_norm:
        training["optimizer"] = "adamw"
    if not all(parameter.requires_grad for parameter in facts.network.parameters()):
        training["adapted"] = "as-given"
    return training


def _usual_training(settings: Options, facts: Facts) -> Options:
    rate = RATES[settings["optimizer"]]
    if settings["optimizer"] == "sgd" and settings["batch_norm"] == "source":
        rate = CAREFUL_RATE
    return {"lr": rate, "views": 1, "adapted": "all-but-head"}


def _parameters_of_the_method(settings: Options, facts: Facts) -> Options:
    return {"adapted": methods.training_defaults(settings["method"]).get("adapted")}


def _number_of_images(settings: Options, facts: Facts) -> Options:
    share = 0.0
    if settings["criterion"] != "last":
        share = settings["hold_out"]
    adapted, _ = hold_out(len(facts.images), share, settings["seed"])
    in_each_process = len(adapted) // processes.world_size()
    return {"batch_size": min(USUAL_BATCH, max(in_each_process, 1))}


def _machine(settings: Options, facts: Facts) -> Options:
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return {"mixed_precision": "bf16"}
    return {"mixed_precision": "no"}


class _Rung(NamedTuple):
    """One step of the ladder.

    Attributes:
        layer: its name, which `check` shows
        decide: settings that are decided, and the facts -> others
        stages: the classes of settings that it decides
        words: setting -> its default, for the help text
    """

    layer: str
    decide: Callable[[Options, Facts], Options]
    stages: tuple[type, ...]
    words: Mapping[str, str]


_ALL = (AdaptConfig, PredictConfig, PretrainConfig)

LADDER = (
    _Rung("method", _method, (AdaptConfig,), {}),
    _Rung("run", _recorded_run, (AdaptConfig, PretrainConfig), {}),
    _Rung("source run", _source_run, (AdaptConfig, PredictConfig), dict.fromkeys(INHERITED, "as in the model's run")),
    _Rung("field", _usual_network, _ALL, {"arch": "resnet18", "no_pool": "off"}),
    _Rung(
        "model",
        _metadata_of_the_network,
        _ALL,
        dict.fromkeys(("image_size", "crop_fraction", "norm_mean", "norm_std", "val_resizing"), "the network's"),
    ),
    _Rung(
        "images",
        _size_of_the_images,
        _ALL,
        {
            "image_size": "the side of square arrays",
            "padding": "for a network without metadata, below 64 pixels, an eighth of the side, at most 4",
        },
    ),
    _Rung(
        "images",
        _layout_of_the_data,
        _ALL,
        dict.fromkeys(("val_resizing", "train_resizing"), "the layout's"),
    ),
    _Rung("field", _usual_images, _ALL, {"image_size": "224", "padding": "0", "no_hflip": "off"}),
    _Rung("source run", _views_of_the_source_run, (PredictConfig,), {"views": "as in the model's run, else 1"}),
    _Rung(
        "model",
        _training_of_the_network,
        (AdaptConfig,),
        {
            "optimizer": "adamw for a network with layer-norm and no batch-norm, sgd for others",
            "adapted": "as-given if some are frozen",
        },
    ),
    _Rung("method", _parameters_of_the_method, (AdaptConfig,), {}),
    _Rung(
        "field",
        _usual_training,
        (AdaptConfig,),
        {
            "lr": "0.01, with adamw 0.0002, with batch-norm statistics of the source 0.001",
            "views": "1",
            "adapted": "all-but-head",
        },
    ),
    _Rung("images", _number_of_images, (AdaptConfig,), {"batch_size": "64, or all where there are fewer"}),
    _Rung(
        "machine", _machine, (AdaptConfig, PretrainConfig), {"mixed_precision": "bf16 on a GPU that has it, else no"}
    ),
)
"""Every rung, from the first."""


def described(owner: type[Settings]) -> dict[str, str]:
    """Setting of a stage -> what decides its default, in the order of the ladder."""
    texts: dict[str, str] = {}
    for rung in LADDER:
        if issubclass(owner, rung.stages):
            for name, words in rung.words.items():
                texts[name] = f"{texts[name]}, else {words}" if name in texts else words
    return texts


# What does not fit together, and what the user is told.


def _require_the_network_of_the_source(config: StageConfig, source: ModelRef) -> None:
    """Raise an error for a setting that describes another network than that of the source model."""
    recorded = _settings_of_run(source)
    for name, setting in settings_of(ModelConfig).items():
        shown = named(name)
        if name in recorded and getattr(config, name) not in (None, recorded[name]):
            shown = named(name, getattr(config, name))
            reason = f"contradicts the run that trained {source.checkpoint}: there it is {recorded[name]}"
        elif source.is_whole and getattr(config, name) not in (setting.default, source.checkpoint):
            reason = "is for checkpoints; a model that is given is taken as it is"
        else:
            continue
        raise BadSetting(f"{shown} {reason}", "leave it out", setting=name)


def _require_consistent(config: StageConfig, settings: Options, facts: Facts) -> None:
    is_known = preprocessing_by(settings, facts.preprocessing) is not None and "image_size" in settings
    if not facts.images_are_fixed and not is_known:
        raise BadModel(
            "the preprocessing of this network is unknown",
            f"pass {named('image_size')}, {named('norm_mean')} and {named('norm_std')}, of a model that normalises "
            f"images itself 0 and 1, or 0 and {1 / 255:.6f} if it takes values from 0 to 255; or in Python "
            "evaluation_transform, such as a library's processor, and if training augments otherwise train_transform",
            setting="norm_mean",
        )
    has_second_view = _augments(settings, facts)
    if isinstance(config, PredictConfig):
        has_second_view = not settings.get("no_hflip")
    if getattr(config, "views", 1) == 2 and not has_second_view:
        raise BadSetting(
            f"{named('views', 2)} needs an augmentation: images are not mirrored here",
            "leave it out, or let them be mirrored",
            setting="views",
        )


def _augments(settings: Options, facts: Facts) -> bool:
    """Whether training sees another view of an image each time."""
    if facts.images_are_fixed:
        return are_mirrored_alone(facts.images, facts.preprocessing) and not settings.get("no_hflip")
    prepared = preprocessing_by(settings, facts.preprocessing)
    return prepared is not None and prepared.second_view() is not None
