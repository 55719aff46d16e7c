"""The configurations: every setting of a training, a prediction or a test, with its type, default, range and help text.

Python keywords, command-line flags, TOML files, ``config.json`` and the plans of the paper's tables are all read from
these classes.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tllib_ancon import methods
from tllib_ancon.config.settings import UNREAD, Flag, Settings, flag_of, redefined, settings_of
from tllib_ancon.config.shared import (
    RATES,
    Count,
    DataConfig,
    File,
    Fraction,
    ImageConfig,
    JsonConfig,
    ModelConfig,
    NetworkConfig,
    OptimizationConfig,
    RunConfig,
    Seed,
    StartConfig,
    Threads,
    Width,
)
from tllib_ancon.runtime.errors import UserError, reading, unknown_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Loss = Literal["cross-entropy", "belief-matching"]
Criterion = Literal["infomax", "corr_c", "mean_entropy", "last", "none"]

CRITERIA_OF_AN_EPOCH = ("infomax", "corr_c", "mean_entropy")
"""The criteria that a run records for every epoch: the names of :data:`tllib_ancon.measures.selection.CRITERIA`."""

STANDARD_OUTPUT = "-"


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


class AdaptConfig(StartConfig, RunConfig, OptimizationConfig, ImageConfig, ModelConfig, DataConfig):
    """How to adapt; the defaults are the paper's for Office-31 and OfficeHome (appendix, "SFDA training
    configurations").

    Settings of the method are given like all others, ``AdaptConfig(method="gce+ancon", smoothing=0.5, q=0.7)``, and are
    in :attr:`options` afterwards, each with its value.

    Attributes:
        start: ``"latest"`` or ``"best"``: which checkpoint of a script of TLLib the source model is, for the record
        options: the settings of the method
    """

    FLAG = Flag(group="method")

    scale: tuple[Fraction, Fraction] = redefined(ImageConfig, "scale", (0.5, 1.0))
    method: Annotated[str, Flag(common=True)] = "ancon-auto"
    """how to adapt: self-training, gce, shot, shot-im, nrc, aad, tent, eta, adabn, a method of another package, or elr,
    ancon or ancon-auto, which also follow other methods after a plus, such as gce+ancon"""
    criterion: Criterion = "infomax"
    """Criterion that selects the epoch, without labels. last or none: the last epoch, and no image is held out.
    Default: last with ancon-auto, else infomax."""
    adapted: Literal["all", "all-but-head", "norm-affine", "as-given"] = UNREAD
    """Parameters to train. as-given: those with requires_grad (default if some are frozen). Other values unfreeze.
    Default: by the method, all-but-head for most."""
    step_change: Annotated[float, Flag(group="optimization")] = Field(UNREAD, gt=0, lt=1)
    """Fit the learning rate so that one step changes the predictions on other images by this part of the difference
    between two views, 0 to 1. `lr` limits the rate. Default: 0.05 for ancon-auto with SGD if `lr` is not given."""
    dropout: bool = False
    """Keep the network's dropout active while pseudo-labels are made."""
    record_every: int = Field(1, ge=1)
    """Evaluate on the target's labels every N epochs. Start, selected and last epoch are always evaluated."""
    answers: Annotated[str | None, Flag(metavar="FILE", group="labels that teach", decides=False)] = None
    """CSV file with path,class on each line: labels of some target images, for `teach`"""
    teach: Annotated[float | None, Flag(group="labels that teach")] = Field(None, gt=0, lt=1)
    """Fraction of the images, drawn by the seed, whose labels in `answers` train the model. The other labels certify
    it."""
    save_predictions: bool = False
    """Store logits, features and votes of every image in predictions.npz."""
    batch_norm: Annotated[Literal["target", "source", "mixed"], Flag(group="stabilisation")] = "target"
    """Batch-norm statistics while adapting. target: of the batch. source: of the source model, fixed, with an `lr` of
    0.001 unless you pass one. mixed: of the batch, after the source's are mixed into scale and shift. Default: mixed
    with ancon-auto, else target."""
    batch_norm_share: Annotated[float | None, Flag(group="stabilisation")] = Field(None, ge=0, le=1)
    """Mixing weight α of the source's batch-norm statistics, 0 to 1. Default: from class imbalance and agreement
    rate."""
    warmup_steps: Annotated[int, Flag(group="stabilisation")] = Field(0, ge=0)
    """steps in which the learning rate rises to its value"""
    accumulation_steps: Annotated[int, Flag(group="many processes and small memories")] = Field(1, ge=1)
    """Gradient-accumulation steps. Votes and batch-norm see each batch separately."""
    sync_batch_norm: Annotated[bool, Flag(group="many processes and small memories")] = False
    """compute batch-norm over the batches of all processes; needs GPUs"""
    options: Mapping[str, Any] = Field({}, exclude=True)
    start: str | None = Field(None, exclude=True)

    def __init__(self, /, **given: Any) -> None:
        options = dict(given.pop("options", {}))
        fields = type(self).model_fields
        names = {*fields, *(field.alias for field in fields.values())}
        options |= {name: given.pop(name) for name in [*given] if name not in names}
        method = given.get("method") or AdaptConfig.model_fields["method"].default
        readable = methods.settings()
        for name in options:
            if name not in readable:
                raise unknown_name("setting", name, {**settings_of(AdaptConfig), **readable})
        defaults = {**methods.training_defaults(method), "adapted": None, "views": None, "step_change": None}
        defaults["options"] = methods.resolve(method, options)
        super().__init__(**{**defaults, **{name: value for name, value in given.items() if value is not None}})

    def check(self) -> None:
        super().check()
        if self.batch_norm != "mixed" and self.batch_norm_share is not None:
            raise UserError(
                f"`batch_norm_share` is for `batch_norm=mixed`, not for `batch_norm={self.batch_norm}`; leave it out"
            )
        if self.batch_norm != "target" and self.sync_batch_norm:
            raise UserError(
                f"`sync_batch_norm` is for the batch's statistics, not for `batch_norm={self.batch_norm}`; leave it out"
            )

    @property
    def held_out_share(self) -> float:
        """Fraction of the images that select the epoch and are not adapted on: none where no score selects it."""
        return self.hold_out if self.criterion in CRITERIA_OF_AN_EPOCH else 0.0

    def to_dict(self) -> dict[str, Any]:
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in self.options.items()}
        return {**super().to_dict(), **options, **({} if self.start is None else {"start": self.start})}


class InferenceConfig(Settings):
    """How images pass through a trained model."""

    FLAG = Flag(group="other settings")

    batch_size: Annotated[int, Flag("-b", metavar="B")] = Field(64, ge=1)
    """images in a step"""
    workers: Annotated[Count, Flag("-j")] = 2
    """processes that load images"""
    threads: Threads | None = None
    """threads of PyTorch on the CPU; by default PyTorch's choice"""
    quiet: bool = False
    """show only errors and results"""


class PredictConfig(InferenceConfig, StartConfig, ImageConfig, ModelConfig, DataConfig):
    """Which model predicts which images; of ``evaluate`` and ``predict``."""


class PredictionsConfig(PredictConfig):
    """Which model predicts which images, and where the predictions go."""

    FLAG = Flag(group="predictions", common=True)

    root: Annotated[str | None, Flag(metavar="IMAGES", group="images", common=True)] = None
    """an image, a folder of images, with its subfolders, an image list, or with --data and --target the folder of a
    dataset"""
    out: Annotated[str, Flag(metavar="FILE")] = "predictions.csv"
    """file to write, as .csv, .parquet or .npz by its ending; - writes CSV to standard output"""
    probabilities: bool = False
    """write the probability of every class, too"""
    overwrite: bool = False
    """replace the file if it exists"""


class AssessConfig(JsonConfig, PredictConfig):
    """Which model is assessed on which images."""

    FLAG = Flag(group="labels", common=True)

    checkpoint: Annotated[str | None, Flag(metavar="MODEL_OR_RUN", group="model", common=True)] = None
    """the model: a checkpoint, or the run directory that holds it"""
    root: Annotated[str | None, Flag(group="images", common=True)] = None
    """folder of images or an image list, or with --data and --target the folder of a dataset"""
    questions: File = None
    """CSV file to write, with the images to label in their order"""
    answers: File = None
    """CSV file with path,class on each line, of the first images in that order; cannot tell counts as wrong"""
    delta: float = Field(0.05, gt=0, lt=1)
    """probability that the interval from labels ever misses"""
    seed: Seed = 0
    """seed of the order of the images"""


class CheckConfig(JsonConfig, AdaptConfig):
    """Which model is checked with which images, or without a model which dataset. The settings are those of ``adapt``,
    so that each shows its effect."""

    FLAG = Flag(group="options", common=True)

    no_decode: bool = False
    """Without a model: only look whether every file is there, which does not find damaged ones."""
    out: Annotated[str | None, Flag(metavar="DIR", group="output")] = None
    """Folder for images.png: eight images as the network gets them, with their predicted classes."""


class CertifyConfig(InferenceConfig, NetworkConfig):
    """Which of a run's two models is better, by labels of a few images on which they disagree."""

    run: Annotated[str, Flag(group="run", common=True)]
    """run directory of an adaptation"""
    root: Annotated[str | None, Flag(group="run")] = None
    """folder of the dataset or of the images; by default the one that the run names"""
    checkpoint: Annotated[str | None, Flag(metavar="FILE", group="run")] = None
    """the source model; by default the one that the run names or keeps"""
    page: Annotated[bool, Flag(group="labels", common=True)] = False
    """ask for labels on a web page that only this machine can open"""
    port: Annotated[int, Flag(group="labels")] = Field(8765, ge=0, le=65_535)
    """port of the page; 0 chooses a free one"""
    answers: Annotated[str | None, Flag(metavar="FILE", group="labels", common=True)] = None
    """CSV file with path,class on each line; in place of a class it may say another or cannot tell"""
    labels: Annotated[str | None, Flag(metavar="FILE", group="labels")] = None
    """image list whose labels answer every question, in place of a user"""
    questions: Annotated[str | None, Flag(metavar="FILE", group="labels", common=True)] = None
    """CSV file to write, with the images to label in their order; beside it, copies of them without telling names"""
    delta: Annotated[float, Flag(group="test", common=True)] = Field(0.05, gt=0, lt=1)
    """largest probability of a false verdict"""
    side: Annotated[Literal["better", "both"], Flag(group="test", common=True)] = "better"
    """Wrong verdicts that `delta` limits. better: a false "better" and a false "worse", each at delta. both: the two
    together, which takes 9 to 18 % more labels"""
    margin: Annotated[float, Flag(group="test", common=True)] = Field(0.0, ge=0, lt=1)
    """difference of accuracy that does not matter, as a share of all images: 0.01 is one percentage point"""
    seed: Annotated[Seed, Flag(group="test")] = 0
    """seed of the order of the images"""

    def check(self) -> None:
        if self.answers is not None and self.labels is not None:
            raise UserError("`answers` and `labels` exclude each other; pass one of them")


class ExportConfig(NetworkConfig):
    """Which model is written in which form."""

    FLAG = Flag(group="file", common=True)

    run: Annotated[str, Flag(group="model")]
    """run directory, or a checkpoint in one"""
    format: Literal["onnx", "torch-export", "state-dict"] = "onnx"
    """format of the file"""
    out: Annotated[str, Flag(metavar="FILE")]
    """file to write"""
    overwrite: bool = False
    """replace the file if it exists"""


def read_file(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, by name; a dash in a name counts as an underscore, as on the command line."""
    with reading(path, "TOML"), open(path, "rb") as file:
        return dict(_underscored(tomllib.load(file)))


def _underscored(content: Any) -> Any:
    """This content with underscores for dashes in the names of all its tables."""
    if isinstance(content, list):
        return [_underscored(entry) for entry in content]
    if isinstance(content, dict):
        return {name.replace("-", "_"): _underscored(value) for name, value in content.items()}
    return content
