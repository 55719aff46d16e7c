"""How to train a source model."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tllib_ancon.config.data import DataConfig
from tllib_ancon.config.images import AugmentationConfig
from tllib_ancon.config.model import ModelConfig
from tllib_ancon.config.optimization import RATES, OptimizationConfig
from tllib_ancon.config.run import RunConfig
from tllib_ancon.config.settings import DECIDED_LATER, Flag, defaults_of, defined
from tllib_ancon.config.types import Area, BelowOne, File, NotNegative, Number, Positive, Width
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.types import Options

Loss = Literal["cross-entropy", "belief-matching"]

DEFAULTS: Mapping[str, Options] = {
    "erm": {
        "bottleneck_dim": 256,
        "bottleneck_dropout": 0.0,
        "batch_size": 64,
        "epochs": 50,
        "iters_per_epoch": None,
        "lr": RATES["sgd"],
        "lr_gamma": 10.0,
        "weight_decay": 1e-3,
        "hold_out": 0.1,
        "loss": "cross-entropy",
        "label_smoothing": 0.0,
        "belief_coefficient": 0.001,
    },
    "cdan": {
        "bottleneck_dim": 256,
        "batch_size": 32,
        "epochs": 20,
        "iters_per_epoch": 1000,
        "lr": 0.01,
        "lr_gamma": 1e-3,
        "weight_decay": 1e-3,
        "trade_off": 1.0,
        "randomized": False,
        "randomized_dim": 1024,
        "entropy": False,
    },
    "mdd": {
        "bottleneck_dim": 1024,
        "batch_size": 32,
        "epochs": 20,
        "iters_per_epoch": 1000,
        "lr": 0.004,
        "lr_gamma": 2e-4,
        "weight_decay": 5e-4,
        "trade_off": 1.0,
        "margin": 4.0,
    },
}
"""Method -> the settings that not all methods have, or have with another default, and their defaults: the paper's for
erm, those of TLLib's scripts for cdan and mdd."""


class PretrainConfig(RunConfig, OptimizationConfig, AugmentationConfig, ModelConfig, DataConfig):
    """How to train a source model: by ``erm`` on the source alone, or by ``cdan`` or ``mdd`` with the target's
    unlabelled images. Defaults are the paper's for erm, those of TLLib's scripts for cdan and mdd.

    A setting that the method does not read is None, and giving it is an error.
    """

    FLAG = Flag(group="CDAN and MDD")

    method: Annotated[Literal["erm", "cdan", "mdd"], Flag(group="method", common=True)] = "erm"
    """how the source model is trained; erm: on the source alone; cdan, mdd: also on unlabelled target images"""
    bottleneck_dim: Width = DECIDED_LATER
    """width of the bottleneck"""
    bottleneck_dropout: Annotated[BelowOne, Flag(group="model", metavar="P")] = DECIDED_LATER
    """probability of dropping a feature after the bottleneck; an adaptation with dropout drops as many"""
    pretrained_weights: Annotated[File, Flag(group="model")] = None
    """file of ImageNet weights of the backbone, .safetensors or .pth; by default those of torchvision or timm"""
    rotation: Annotated[float, Flag(group="images", metavar="DEG")] = Field(0.0, ge=0, le=180)
    """largest angle in degrees by which training images are rotated, either way"""
    batch_size: Number = DECIDED_LATER
    """images in a step, in each process"""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """how the network is trained"""
    lr: Positive = DECIDED_LATER
    """learning rate of new layers; a pre-trained backbone learns at a tenth of it; 0.0002 with adamw"""
    scale: Area = (0.08, 1.0)
    ratio: Annotated[tuple[Positive, Positive], Flag(group="images", metavar=("MIN", "MAX"))] = (3 / 4, 4 / 3)
    """smallest and largest width of a random crop, as a multiple of its height"""
    loss: Annotated[Loss, Flag(group="source only (erm)")] = DECIDED_LATER
    """loss of the source model; belief-matching trains the last layer to give a Dirichlet distribution"""
    label_smoothing: Annotated[BelowOne, Flag(group="source only (erm)")] = DECIDED_LATER
    """label smoothing of the cross-entropy; SHOT's paper uses 0.1"""
    belief_coefficient: Annotated[NotNegative, Flag(group="source only (erm)")] = DECIDED_LATER
    """weight of belief matching's divergence"""
    iters_per_epoch: Annotated[Number | None, Flag("-i")] = None
    """steps in an epoch; by default 1000, for erm a pass over the source"""
    trade_off: NotNegative = DECIDED_LATER
    """weight of the adversarial loss"""
    randomized: Annotated[bool, Flag("-r")] = DECIDED_LATER
    """CDAN: condition on a random multilinear map"""
    randomized_dim: Annotated[Width, Flag("-rd", metavar="D")] = DECIDED_LATER
    """CDAN: dimension of the random multilinear map"""
    entropy: bool = DECIDED_LATER
    """CDAN: weigh samples by their entropy"""
    margin: Positive = DECIDED_LATER
    """MDD: margin of the margin disparity discrepancy"""

    def __init__(self, **settings: Any) -> None:
        method = str(settings.get("method") or "erm")
        requested = defined(settings)
        defaults = dict(DEFAULTS.get(method, DEFAULTS["erm"]))
        if requested.get("optimizer") == "adamw":
            defaults["lr"] = RATES["adamw"]
        for name in requested:
            readers = defaults_of(name, DEFAULTS)
            if readers and method in DEFAULTS and method not in readers:
                raise BadSetting(
                    f"{named(name)} is an option of {' and '.join(readers)}, not of {method}",
                    "leave it out",
                    setting=name,
                )
        super().__init__(**{**defaults, **requested})

    def check(self) -> None:
        super().check()
        if self.label_smoothing and self.loss != "cross-entropy":
            raise BadSetting(
                f"{named('label_smoothing')} belongs to the cross-entropy",
                f"leave it out with {named('loss', self.loss)}",
                setting="label_smoothing",
            )
