"""How a model is adapted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tllib_ancon.config.base import plain
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.pictures import DataConfig, ImageConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.training import OptimizationConfig, RunConfig
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.settings import redefined, setting, settings_of

ADAPTED_PARAMETERS = ("all", "all-but-head", "norm-affine")
BATCH_NORMS = ("target", "source", "mixed")
CAREFUL_LR = 0.001
"""At which a network trains by statistics that are not those of its images; at 0.01 all methods diverge."""
CRITERIA = ("infomax", "corr_c", "mean_entropy", "snd", "nuclear_norm", "aetta", "last", "none")
CRITERIA_OF_AN_EPOCH = ("infomax", "corr_c", "mean_entropy", "marginal_entropy", "snd", "nuclear_norm", "aetta")
"""Those that a run records of every epoch: the names of :data:`tllib_ancon.selection.CRITERIA`, without torch."""


@dataclass(frozen=True, kw_only=True, init=False)
class AdaptConfig(StartConfig, RunConfig, OptimizationConfig, ImageConfig, ModelConfig, DataConfig):
    """How to adapt; the defaults are the paper's for Office-31 and OfficeHome (appendix, "SFDA training
    configurations").

    Settings of the method are given like all others, ``AdaptConfig(method="gce+ancon", smoothing=0.5, q=0.7)``, and are
    in :attr:`options` afterwards, each with its value.

    Attributes:
        start: a :class:`PretrainConfig`: the source model is trained first, as that says. ``"latest"`` or ``"best"``:
            which checkpoint of a script of TLLib the start is, for the record
        options: the settings of the method
    """

    scale: tuple[float, float] = redefined(ImageConfig, "scale", (0.5, 1.0))
    method: str = setting(
        "ancon",
        "how to adapt: a method, or a composition such as gce+ancon",
        metavar="METHOD",
        group="method",
        common=True,
    )
    criterion: str = setting(
        "infomax",
        "criterion that selects the epoch, without labels; last: the last epoch, the default of ancon-auto; none: the "
        "last epoch, and no image is held out",
        choices=CRITERIA,
        group="method",
    )
    adapted: str = setting(
        None,
        "parameters that are trained; by default by the method, all-but-head for most",
        choices=ADAPTED_PARAMETERS,
        group="method",
    )
    dropout: bool = setting(False, "leave the network's dropout on while pseudo-labels are taken", group="method")
    record_every: int = setting(
        1,
        "epochs between passes over the whole target for the record, where it has labels; start, selected and last "
        "epoch are recorded too",
        metavar="N",
        at_least=1,
        group="method",
    )
    save_epochs: bool = setting(False, "keep the model of every epoch in the run directory", group="method")
    save_predictions: bool = setting(
        False, "keep logits, features and votes of every image as predictions.npz", group="method"
    )
    save_logits: bool = setting(
        False, "keep the logits of every epoch on all images as logits/epoch-NNN.npz", group="method"
    )
    batch_norm: str = setting(
        "target",
        "statistics by which batch-norm normalises while adapting; target: the batch's; source: the start's, which "
        "stay, at a default `lr` of 0.001; mixed: both",
        choices=BATCH_NORMS,
        group="caution",
    )
    batch_norm_prior: float = setting(
        64.0,
        "images that the source's statistics count for beside a batch's, for batch_norm=mixed",
        metavar="N",
        at_least=0,
        group="caution",
    )
    warmup_steps: int = setting(
        0, "steps in which the learning rate rises to its value", metavar="N", at_least=0, group="caution"
    )
    pull: float = setting(
        0.0,
        "share of the way back to the start's weights that the weights go after each step, as 0.001",
        at_least=0,
        below=1,
        group="caution",
    )
    average_last: int = setting(
        0,
        "last epochs of whose weights the mean is scored as one more epoch, which the criterion may select",
        metavar="N",
        at_least=0,
        group="caution",
    )
    accumulation_steps: int = setting(
        1,
        "batches in a step of the optimiser; votes and batch-norm take each batch by itself",
        metavar="N",
        at_least=1,
        group="many processes and small memories",
        per_stage=True,
    )
    sync_batch_norm: bool = setting(
        False,
        "compute batch-norm over the batches of all processes; needs GPUs",
        group="many processes and small memories",
        per_stage=True,
    )
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    start: PretrainConfig | str | None = None

    def __init__(self, **given: Any) -> None:
        from tllib_ancon import methods

        start, options = given.pop("start", None), dict(given.pop("options", {}))
        known = settings_of(AdaptConfig)
        options |= {name: given.pop(name) for name in [*given] if name not in known}
        method = given.get("method", known["method"].default)
        readable = methods.settings()
        for name in options:
            if name not in readable:
                raise unknown_name("setting", name, {**known, **methods.settings(method)})
        object.__setattr__(self, "options", methods.resolve(method, options, given.get("data")))
        object.__setattr__(self, "start", start)
        defaults = {"adapted": "all-but-head", **methods.training_defaults(method)}
        if given.get("batch_norm") == "source":
            defaults["lr"] = CAREFUL_LR
        super().__init__(**{**defaults, **{name: value for name, value in given.items() if value is not None}})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.average_last > self.epochs:
            raise UserError(f"`average_last` {self.average_last} is more than `epochs` {self.epochs}")
        if self.batch_norm != "mixed" and self.batch_norm_prior != settings_of(AdaptConfig)["batch_norm_prior"].default:
            raise UserError(f"`batch_norm_prior` is for `batch_norm=mixed`, not for `batch_norm={self.batch_norm}`")
        if self.batch_norm != "target" and self.sync_batch_norm:
            raise UserError(f"`sync_batch_norm` is for the batch's statistics, not for `batch_norm={self.batch_norm}`")

    def to_dict(self) -> dict[str, Any]:
        own = {**super().to_dict(), **{name: plain(value) for name, value in self.options.items()}}
        match self.start:
            case PretrainConfig():
                return {**own, "start": self.start.to_dict()}
            case str():
                return {**own, "start": self.start}
        return own

    def _given(self) -> dict[str, Any]:
        return {**super()._given(), "options": self.options, "start": self.start}
