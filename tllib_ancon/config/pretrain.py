"""How a source model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tllib_ancon.config.inherited import ASSUMED
from tllib_ancon.config.model import ModelConfig
from tllib_ancon.config.pictures import DataConfig, ImageConfig
from tllib_ancon.config.training import OptimizationConfig, RunConfig
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.settings import redefined, setting, settings_of, spec

LOSSES = ("cross-entropy", "belief-matching")
PRETRAINING = ("erm", "cdan", "mdd")


@dataclass(frozen=True, kw_only=True, init=False)
class PretrainConfig(RunConfig, OptimizationConfig, ImageConfig, ModelConfig, DataConfig):
    """How to train a source model: by ``erm`` on the source alone, or by ``cdan`` or ``mdd`` with the target's
    unlabelled images. Defaults are the paper's for erm, those of TLLib's scripts for cdan and mdd.

    A setting that the method does not read is None, and giving it is an error.
    """

    method: str = setting(
        "erm",
        "how the source model is trained; erm: on the source alone; cdan, mdd: also on unlabelled target images",
        choices=PRETRAINING,
        group="method",
        common=True,
        per_stage=True,
    )
    bottleneck_dim: int = redefined(
        ModelConfig, "bottleneck_dim", help="width of the bottleneck", defaults={"erm": 256, "cdan": 256, "mdd": 1024}
    )
    bottleneck_dropout: float = redefined(
        ModelConfig,
        "bottleneck_dropout",
        help="probability of dropping a feature after the bottleneck",
        defaults={"erm": 0.0},
    )
    batch_size: int = redefined(OptimizationConfig, "batch_size", defaults={"erm": 64, "cdan": 32, "mdd": 32})
    epochs: int = redefined(OptimizationConfig, "epochs", defaults={"erm": 50, "cdan": 20, "mdd": 20})
    lr: float = redefined(OptimizationConfig, "lr", defaults={"erm": 0.01, "cdan": 0.01, "mdd": 0.004})
    lr_gamma: float = redefined(OptimizationConfig, "lr_gamma", defaults={"erm": 10.0, "cdan": 1e-3, "mdd": 2e-4})
    weight_decay: float = redefined(
        OptimizationConfig, "weight_decay", defaults={"erm": 1e-3, "cdan": 1e-3, "mdd": 5e-4}
    )
    hold_out: float = redefined(OptimizationConfig, "hold_out", defaults={"erm": 0.1})
    scale: tuple[float, float] = redefined(ImageConfig, "scale", (0.08, 1.0))
    loss: str = setting(
        None,
        "loss of the source model; belief-matching trains the last layer to give a Dirichlet distribution",
        choices=LOSSES,
        group="source only (erm)",
        per_stage=True,
        defaults={"erm": "cross-entropy"},
    )
    label_smoothing: float = setting(
        None,
        "label smoothing of the cross-entropy; SHOT's paper uses 0.1",
        metavar="X",
        at_least=0,
        below=1,
        group="source only (erm)",
        per_stage=True,
        defaults={"erm": 0.0},
    )
    belief_coefficient: float = setting(
        None,
        "weight of belief matching's divergence",
        metavar="X",
        at_least=0,
        group="source only (erm)",
        per_stage=True,
        defaults={"erm": 0.001},
    )
    iters_per_epoch: int | None = setting(
        None,
        "steps in an epoch; by default 1000, for erm a pass over the source",
        flags=("-i",),
        metavar="N",
        at_least=1,
        group="CDAN and MDD",
        per_stage=True,
        defaults={"erm": None, "cdan": 1000, "mdd": 1000},
    )
    trade_off: float = setting(
        None,
        "weight of the adversarial loss",
        metavar="X",
        at_least=0,
        group="CDAN and MDD",
        per_stage=True,
        defaults={"cdan": 1.0, "mdd": 1.0},
    )
    randomized: bool = setting(
        None,
        "CDAN: condition on a random multilinear map",
        flags=("-r",),
        group="CDAN and MDD",
        per_stage=True,
        defaults={"cdan": False},
    )
    randomized_dim: int = setting(
        None,
        "CDAN: dimension of the random multilinear map",
        flags=("-rd",),
        metavar="D",
        at_least=1,
        at_most=1_000_000,
        group="CDAN and MDD",
        per_stage=True,
        defaults={"cdan": 1024},
    )
    entropy: bool = setting(
        None, "CDAN: weigh samples by their entropy", group="CDAN and MDD", per_stage=True, defaults={"cdan": False}
    )
    margin: float = setting(
        None,
        "MDD: margin of the margin disparity discrepancy",
        metavar="X",
        above=0,
        group="CDAN and MDD",
        per_stage=True,
        defaults={"mdd": 4.0},
    )

    def __init__(self, **given: Any) -> None:
        method = given.get("method", "erm")
        if method not in PRETRAINING:
            raise unknown_name("pre-training method", str(method), PRETRAINING)
        defaults: dict[str, Any] = {}
        for name, field in settings_of(PretrainConfig).items():
            by_method = spec(field).defaults
            if by_method is None:
                continue
            if method not in by_method and given.get(name) is not None:
                owners = " and ".join(by_method)
                raise UserError(f"`{name}` is an option of `method={owners}`, not of {method}; leave it out")
            defaults[name] = by_method.get(method)
        chosen = {name: value for name, value in given.items() if value is not None}
        super().__init__(**{**defaults, **chosen})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_smoothing and self.loss != "cross-entropy":
            raise UserError(f"`label_smoothing` belongs to the cross-entropy; leave it out with `loss={self.loss}`")

    def with_assumed(self) -> PretrainConfig:
        """The same settings with :data:`ASSUMED` for what was not given of model and pictures."""
        missing = (name for name in ASSUMED if getattr(self, name) is None and self._reads(name))
        return self.replace(**{name: ASSUMED[name] for name in missing})

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if self._reads(name)}

    def _reads(self, name: str) -> bool:
        by_method = spec(settings_of(PretrainConfig)[name]).defaults
        return by_method is None or self.method in by_method

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in super()._given().items() if self._reads(name)}
