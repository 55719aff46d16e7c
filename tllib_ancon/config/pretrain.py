"""How to train a source model."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tllib_ancon.config.data import DataConfig
from tllib_ancon.config.images import ImageConfig
from tllib_ancon.config.model import ModelConfig
from tllib_ancon.config.optimization import RATES, OptimizationConfig
from tllib_ancon.config.run import RunConfig
from tllib_ancon.config.settings import UNREAD, Flag, flag_of, redefined, settings_of
from tllib_ancon.config.types import Fraction, Width
from tllib_ancon.runtime.errors import UserError

Loss = Literal["cross-entropy", "belief-matching"]


class PretrainConfig(RunConfig, OptimizationConfig, ImageConfig, ModelConfig, DataConfig):
    """How to train a source model: by ``erm`` on the source alone, or by ``cdan`` or ``mdd`` with the target's
    unlabelled images. Defaults are the paper's for erm, those of TLLib's scripts for cdan and mdd.

    A setting that the method does not read is None, and giving it is an error.
    """

    FLAG = Flag(group="CDAN and MDD")

    method: Annotated[Literal["erm", "cdan", "mdd"], Flag(group="method", common=True)] = "erm"
    """how the source model is trained; erm: on the source alone; cdan, mdd: also on unlabelled target images"""
    bottleneck_dim: Width = redefined(ModelConfig, "bottleneck_dim", erm=256, cdan=256, mdd=1024)
    """width of the bottleneck"""
    bottleneck_dropout: float = redefined(ModelConfig, "bottleneck_dropout", erm=0.0)
    """probability of dropping a feature after the bottleneck"""
    batch_size: int = redefined(OptimizationConfig, "batch_size", erm=64, cdan=32, mdd=32)
    """images in a step, in each process"""
    epochs: int = redefined(OptimizationConfig, "epochs", erm=50, cdan=20, mdd=20)
    optimizer: Literal["sgd", "adamw"] = redefined(OptimizationConfig, "optimizer", "sgd")
    """how the network is trained"""
    lr: float = redefined(OptimizationConfig, "lr", erm=RATES["sgd"], cdan=0.01, mdd=0.004)
    """learning rate of new layers; a pre-trained backbone learns at a tenth of it; 0.0002 with `optimizer=adamw`"""
    lr_gamma: float = redefined(OptimizationConfig, "lr_gamma", erm=10.0, cdan=1e-3, mdd=2e-4)
    weight_decay: float = redefined(OptimizationConfig, "weight_decay", erm=1e-3, cdan=1e-3, mdd=5e-4)
    hold_out: float = redefined(OptimizationConfig, "hold_out", erm=0.1)
    scale: tuple[Fraction, Fraction] = redefined(ImageConfig, "scale", (0.08, 1.0))
    loss: Annotated[Loss, Flag(group="source only (erm)", defaults={"erm": "cross-entropy"})] = UNREAD
    """loss of the source model; belief-matching trains the last layer to give a Dirichlet distribution"""
    label_smoothing: Annotated[float, Flag(group="source only (erm)", defaults={"erm": 0.0})] = Field(
        UNREAD, ge=0, lt=1
    )
    """label smoothing of the cross-entropy; SHOT's paper uses 0.1"""
    belief_coefficient: Annotated[float, Flag(group="source only (erm)", defaults={"erm": 0.001})] = Field(UNREAD, ge=0)
    """weight of belief matching's divergence"""
    iters_per_epoch: Annotated[int | None, Flag("-i", defaults={"erm": None, "cdan": 1000, "mdd": 1000})] = Field(
        None, ge=1
    )
    """steps in an epoch; by default 1000, for erm a pass over the source"""
    trade_off: Annotated[float, Flag(defaults={"cdan": 1.0, "mdd": 1.0})] = Field(UNREAD, ge=0)
    """weight of the adversarial loss"""
    randomized: Annotated[bool, Flag("-r", defaults={"cdan": False})] = UNREAD
    """CDAN: condition on a random multilinear map"""
    randomized_dim: Annotated[Width, Flag("-rd", metavar="D", defaults={"cdan": 1024})] = UNREAD
    """CDAN: dimension of the random multilinear map"""
    entropy: Annotated[bool, Flag(defaults={"cdan": False})] = UNREAD
    """CDAN: weigh samples by their entropy"""
    margin: Annotated[float, Flag(defaults={"mdd": 4.0})] = Field(UNREAD, gt=0)
    """MDD: margin of the margin disparity discrepancy"""

    def __init__(self, **given: Any) -> None:
        method = given.get("method") or "erm"
        given = {name: value for name, value in given.items() if value is not None}
        defaults: dict[str, Any] = {}
        for name, by_method in _defaults_by_method().items():
            if method not in by_method and name in given:
                owners = " and ".join(by_method)
                raise UserError(f"`{name}` is an option of `method={owners}`, not of {method}; leave it out")
            defaults[name] = by_method.get(method)
        if given.get("optimizer") == "adamw":
            defaults["lr"] = RATES["adamw"]
        super().__init__(**{**defaults, **given})

    def check(self) -> None:
        super().check()
        if self.label_smoothing and self.loss != "cross-entropy":
            raise UserError(f"`label_smoothing` belongs to the cross-entropy; leave it out with `loss={self.loss}`")

    def to_dict(self) -> dict[str, Any]:
        unread = {name for name, by_method in _defaults_by_method().items() if self.method not in by_method}
        return {name: value for name, value in super().to_dict().items() if name not in unread}


def _defaults_by_method() -> dict[str, Mapping[str, Any]]:
    """Setting of a source training -> its default by each method that reads it, where not all have one and the same."""
    fields = settings_of(PretrainConfig).items()
    return {name: defaults for name, field in fields if (defaults := flag_of(field).defaults) is not None}
