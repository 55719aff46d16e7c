"""Which network, and from which trained model it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tllib_ancon.config.base import Config, SettingsType
from tllib_ancon.config.inherited import ASSUMED, INHERITED, OF_THE_NETWORK
from tllib_ancon.errors import UserError
from tllib_ancon.settings import default_of, setting, settings_of


@dataclass(frozen=True, kw_only=True, init=False)
class ModelConfig(Config):
    """Which network."""

    arch: str | None = setting(
        None,
        "network: a ResNet of torchvision, any model of timm, timm/NAME, torchvision/NAME, small_cnn, or "
        f"SHOT's shot_lenet; by default the model's, or {ASSUMED['arch']}",
        flags=("-a",),
        metavar="ARCH",
        group="model",
        common=True,
    )
    arch_option: tuple[str, ...] | None = setting(
        None, "options of the model of timm, such as pad_type=same", metavar="KEY=VALUE", group="model"
    )
    bottleneck_dim: int | None = setting(
        None,
        "width of the bottleneck; by default the model's",
        metavar="D",
        at_least=1,
        at_most=1_000_000,
        group="model",
    )
    bottleneck_dropout: float | None = setting(
        None,
        "probability of dropping a feature after the bottleneck in training, and with `dropout` in adaptation; by "
        "default the model's",
        metavar="P",
        at_least=0,
        below=1,
        group="model",
    )
    no_pool: bool | None = setting(
        None, "leave out the pooling after the backbone; by default as in the model's run", group="model"
    )
    scratch: bool = setting(
        False, "start without pre-trained weights; the backbone then learns at the full rate", group="model"
    )
    pretrained_weights: str | None = setting(
        None,
        "file of ImageNet weights of the backbone, .safetensors or .pth; by default those of torchvision or timm",
        metavar="FILE",
        group="model",
    )


@dataclass(frozen=True, kw_only=True, init=False)
class StartConfig(Config):
    """From which trained model."""

    checkpoint: str | None = setting(
        None,
        "source model: a checkpoint, or the run directory that holds it; imagenet: the network with its own ImageNet "
        "head",
        metavar="FILE",
        group="model",
        common=True,
    )
    override: bool = setting(
        False, "accept settings of the model and its pictures that contradict the run that trained it", group="model"
    )

    def refuse_beside_a_model(self) -> None:
        """Refuse the settings that say which network it is and from what it starts, where a module is given.

        Raises:
            UserError: one of them is set
        """
        for name in ("start", "checkpoint"):
            if getattr(self, name, None) is not None:
                raise UserError(f"give a model or `{name}`, not both")
        for name, field in settings_of(ModelConfig).items():
            if getattr(self, name, None) != default_of(field):
                raise UserError(f"`{name}` is for checkpoints; a model that is given is taken as it is; leave it out")

    def inherit(self: SettingsType, recorded: Mapping[str, Any] | None, where: str) -> SettingsType:
        """These settings with those of the model and its pictures that were not given: from the run that trained the
        model, else :data:`ASSUMED`.

        Args:
            recorded: the configuration of that run, None without one
            where: what holds the model, for the message

        Raises:
            UserError: a given setting contradicts the run's, and ``override`` is not set
        """
        taken = {}
        for name in INHERITED:
            given, there = getattr(self, name), _tupled((recorded or {}).get(name))
            if given is None:
                assumed = None if name in OF_THE_NETWORK else ASSUMED.get(name)
                taken[name] = assumed if there is None else there
            elif there is not None and given != there and not getattr(self, "override", False):
                raise UserError(
                    f"`{name}={_shown(given)}` contradicts the run that trained {where}: there it is {_shown(there)}; "
                    "leave it out, or pass `override=True`"
                )
        if getattr(self, "train_resizing", None) is None and recorded is not None:
            taken["train_resizing"] = recorded.get("train_resizing")
        return self.replace(**taken)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
