"""How to adapt a source model to a target domain."""

from typing import Annotated, Literal

from annotated_types import Interval
from pydantic import ConfigDict

from tllib_ancon.config.data import DataConfig
from tllib_ancon.config.images import AugmentationConfig
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.optimization import OptimizationConfig
from tllib_ancon.config.run import RunConfig
from tllib_ancon.config.settings import DECIDED_LATER, Flag
from tllib_ancon.config.types import Area, BelowOne, NotNegative, Number
from tllib_ancon.runtime.types import Options

Criterion = Literal["infomax", "corr_c", "mean_entropy", "last"]
BatchNorm = Literal["target", "source", "mixed"] | Annotated[float, Interval(ge=0, le=1)]


class AdaptConfig(StartConfig, RunConfig, OptimizationConfig, AugmentationConfig, ModelConfig, DataConfig):
    """How to adapt; the defaults are the paper's for Office-31 and OfficeHome (appendix, "SFDA training
    configurations").

    Options of the method are given like all other settings, ``AdaptConfig(method="gce+ancon", smoothing=0.5, q=0.7)``.
    Any other name counts as one, and is in :attr:`options`. ``adapt`` and ``check`` check them before they open a
    model or images.
    """

    model_config = ConfigDict(extra="allow")
    FLAG = Flag(group="method")

    epochs: Number = 30
    lr_gamma: NotNegative = 10.0
    weight_decay: NotNegative = 1e-3
    hold_out: BelowOne = 0.1
    scale: Area = (0.5, 1.0)
    method: Annotated[str, Flag(common=True)] = "ancon-auto"
    """how to adapt: self-training, gce, shot, shot-im, nrc, aad, tent, eta, adabn, a method of another package,
    or elr, ancon or ancon-auto, which also follow other methods after a plus, such as gce+ancon"""
    criterion: Criterion = "infomax"
    """criterion that selects the epoch, without labels. last: the last epoch, and no image is held out"""
    adapted: Literal["all", "all-but-head", "norm-affine", "as-given"] = DECIDED_LATER
    """parameters to train. as-given: those with requires_grad (default if some are frozen). Other values unfreeze.
    All but the head is usual"""
    dropout: bool = False
    """Keep the network's dropout active while pseudo-labels are made."""
    teacher: Annotated[str | None, Flag(metavar="MODEL", group="second opinion")] = None
    """Another model, whose predictions enter the pseudo-labels: a checkpoint, a run directory, hf:FOLDER or
    open_clip:NAME/WEIGHTS. Its classes are matched by name, else by their order."""
    batch_norm: Annotated[BatchNorm, Flag(group="stabilisation", metavar="target|source|mixed|X")] = "target"
    """batch-norm statistics while adapting. target: of the batch. source: of the source model, fixed, at a learning
    rate of 0.001 unless you pass one. mixed: of the batch, after the source's are mixed into scale and shift. Their
    weight is the share of images that both statistics predict alike, beyond chance. It rises to 1 at the last layer of
    a deep network. Where classes seem to be missing, the later half of the layers keeps the source's. A number, 0 to 1:
    mixed with this weight"""

    @property
    def options(self) -> Options:
        """The options of the method: the passed ones, and once an adaptation is open, all."""
        return self.model_extra or {}
