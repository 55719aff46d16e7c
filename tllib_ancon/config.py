"""Every setting of a training, once: its type, default, range and help text.

Python keywords, command-line flags, TOML files, ``config.json`` and the plans of the paper's tables are all read from
these classes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Gt, Interval
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from tllib_ancon import methods
from tllib_ancon.errors import UserError, reading, unknown_name
from tllib_ancon.settings import UNREAD, Flag, Settings, flag_of, redefined, settings_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TrainResizing = Literal["default", "cen.crop", "ran.crop", "res.", "keep-ratio"]
EvaluationResizing = Literal["default", "res.", "keep-ratio"]
LARGEST_SEED = 2**32 - 1
RATES = {"sgd": 0.01, "adamw": 2e-4}
"""Optimiser -> learning rate of new layers by default."""

STANDARD_OUTPUT = "-"
"""The file name of standard output."""

Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Interval(gt=0, le=1)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]
Count = Annotated[int, Interval(ge=0, le=4096)]
Threads = Annotated[int, Interval(ge=1, le=4096)]
Pixels = Annotated[int, Interval(ge=1, le=16_384)]
Width = Annotated[int, Interval(ge=1, le=1_000_000)]
Steps = Annotated[int, Ge(1)]
Seed = Annotated[int, Interval(ge=0, le=LARGEST_SEED)]
Loss = Literal["cross-entropy", "belief-matching"]
Criterion = Literal["infomax", "corr_c", "mean_entropy", "last", "none"]
CriterionOfAnEpoch = Literal["infomax", "corr_c", "mean_entropy"]

CRITERIA_OF_AN_EPOCH: tuple[str, ...] = get_args(CriterionOfAnEpoch)
"""The criteria that a run records for every epoch: the names of :data:`tllib_ancon.selection.CRITERIA`."""


class DataConfig(Settings):
    """Which images."""

    FLAG = Flag(group="domains")

    root: Annotated[str | None, Flag(common=True)] = None
    """folder of the dataset"""
    data: Annotated[str | None, Flag("-d", common=True)] = None
    """Dataset of TLLib, such as Office31, OfficeHome, VisDA2017 or DomainNet, or the layout of ROOT. ImageList:
    image_list/<domain>.txt. ImageFolder: class folders in ROOT/DOMAIN. Folder: any tree of images. hf:NAME: a Hugging
    Face dataset. ImageNetC: corruption/severity/<WordNet id>/*. CorruptedImages: the same with other classes."""
    source: Annotated[tuple[str, ...], Flag("-s")] = ()
    """names of the source domains"""
    target: Annotated[tuple[str, ...], Flag("-t", common=True)] = ()
    """names of the target domains"""
    subset: Annotated[str | None, Flag(metavar="FILE")] = None
    """use only the images of ImageNetC that this file lists, class/name on each line; by default all"""
    num_classes: Annotated[Width | None, Flag(metavar="K")] = None
    """number of classes of an ImageList without image_list/classes.txt"""
    allow_outside_root: bool = False
    """accept image lists that name files outside ROOT"""
    skip_corrupt: bool = False
    """Decode every image before training and leave out unreadable images."""
    image_column: Annotated[str | None, Flag(metavar="NAME")] = None
    """column of hf:NAME that holds the images; by default the only column of images"""
    label_column: Annotated[str | None, Flag(metavar="NAME")] = None
    """column of hf:NAME that holds the class labels; by default the only column of labels"""
    allow_download: Annotated[bool, Flag(decides=False)] = False
    """download hf:NAME or open_clip:NAME from the hub if it is not in the cache"""

    @property
    def opening(self) -> dict[str, Any]:
        """How images are opened: arguments of :func:`tllib_ancon.data.open.open_domain`."""
        names = ("num_classes", "subset", "image_column", "label_column", "allow_download")
        return {"allow_outside": self.allow_outside_root, **{name: getattr(self, name) for name in names}}


class ModelConfig(Settings):
    """Which network."""

    FLAG = Flag(group="model")

    arch: Annotated[str | None, Flag("-a", common=True)] = None
    """Network: a ResNet of torchvision, any model of timm, timm/NAME, torchvision/NAME, small_cnn, or SHOT's
    shot_lenet. With weights: hf:NAME (image classifier of transformers) or open_clip:NAME/WEIGHTS (zero-shot), by hub
    name or folder. Default: that of the checkpoint, or resnet18"""
    arch_option: Annotated[tuple[str, ...] | None, Flag(metavar="KEY=VALUE")] = None
    """options of the model of timm, such as pad_type=same"""
    bottleneck_dim: Annotated[Width | None, Flag(metavar="D")] = None
    """width of the bottleneck; by default the model's"""
    bottleneck_dropout: Annotated[float | None, Flag(metavar="P")] = Field(None, ge=0, lt=1)
    """probability of dropping a feature after the bottleneck in training, and with `dropout` in adaptation; by default
    the model's"""
    no_pool: bool | None = None
    """leave out the pooling after the backbone; by default as in the model's run"""
    scratch: bool = False
    """start without pre-trained weights; the backbone then learns at the full rate"""
    pretrained_weights: Annotated[str | None, Flag(metavar="FILE")] = None
    """file of ImageNet weights of the backbone, .safetensors or .pth; by default those of torchvision or timm"""


class ImageConfig(Settings):
    """How an image becomes a tensor."""

    FLAG = Flag(group="images")

    train_resizing: TrainResizing | None = None
    """Resizing and cropping of training images. `default`: to a square, then a random resized crop. `cen.crop`,
    `ran.crop`: to a square, then its centre or a random crop. `res.`: to a square. `keep-ratio`: by the shorter side,
    then a random resized crop. Default: keep-ratio for ImageFolder, Folder and hf:NAME, else default."""
    val_resizing: EvaluationResizing | None = None
    """Resizing and cropping for evaluation. `default`: to a square, then its centre. `res.`: to a square. `keep-ratio`:
    by the shorter side, then the centre. Default: as in training."""
    resize_size: Annotated[Pixels | None, Flag(metavar="PX")] = None
    """side in pixels of the square that the resizing res. makes; by default the model's, or 224"""
    image_size: Annotated[Pixels | None, Flag(metavar="PX")] = None
    """Side of the crop in pixels. Default: the model's, else the side of square arrays, or 224"""
    crop_fraction: Share | None = None
    """Side of the evaluation crop divided by the side of the resized image. Default: the model's, 1 for an unknown
    network, else 0.875"""
    scale: Annotated[tuple[Share, Share] | None, Flag(metavar=("MIN", "MAX"))] = None
    """smallest and largest area of a random crop, as a share of the image's"""
    ratio: Annotated[tuple[Positive, Positive], Flag(metavar=("MIN", "MAX"))] = (3 / 4, 4 / 3)
    """smallest and largest width of a random crop, as a multiple of its height"""
    padding: Annotated[int | None, Flag(metavar="PX")] = Field(None, ge=0, le=16_384)
    """Padding of training images in pixels, cropped back at random. Default: 0, or 4 below 64 pixels for an unknown
    network."""
    rotation: Annotated[float, Flag(metavar="DEG")] = Field(0.0, ge=0, le=180)
    """largest angle in degrees by which training images are rotated, either way"""
    no_hflip: bool | None = None
    """Do not mirror training images at random. Default: as in the model's run, else off."""
    cache: Annotated[str | None, Flag(metavar="DIR", decides=False)] = None
    """Folder that stores decoded and resized images for later runs, 0.2 MB each at 256 pixels. Default: memory, if they
    fit in a quarter of the free memory."""
    device_augmentation: bool = False
    """crop and flip training images on the GPU, or without one in the main process; the crops are the same up to
    rounding"""
    norm_mean: Annotated[tuple[float, ...] | None, Flag(metavar="X")] = None
    """mean of each channel for the normalisation, of pixels from 0 to 1; by default that of the architecture's
    training"""
    norm_std: Annotated[tuple[Positive, ...] | None, Flag(metavar="X")] = None
    """standard deviation of each channel for the normalisation, of pixels from 0 to 1; by default as for the mean"""

    @model_validator(mode="after")
    def _check_images(self) -> Self:
        for name in ("scale", "ratio"):
            least, most = getattr(self, name) or (0, 1)
            if least > most:
                raise UserError(f"`{name}` must be MIN and MAX with MIN <= MAX, got {least} {most}")
        for name in ("norm_mean", "norm_std"):
            count = len(getattr(self, name) or "rgb")
            if count not in (1, 3):
                raise UserError(f"`{name}` needs 3 values, or 1 for grey, got {count}")
        return self


class NetworkConfig(Settings):
    """Of which network the weights are, where neither a run nor a library can tell."""

    model: Annotated[str | None, Flag(metavar="MODULE:FUNCTION", group="model", decides=False)] = None
    """Function that returns your network, for the weights of a checkpoint. Its module may lie in the current folder.
    Default: the network of the run or of `arch`."""


class StartConfig(NetworkConfig):
    """From which trained model."""

    FLAG = Flag(group="model")

    checkpoint: Annotated[str | None, Flag(metavar="FILE", common=True)] = None
    """source model: a checkpoint, or the run directory that holds it; imagenet: the network with its own ImageNet
    head"""
    override: bool = False
    """accept settings of the model and its images that contradict the run that trained it"""
    class_names: Annotated[str | None, Flag(metavar="FILE")] = None
    """Names of the model's classes, one on each line, in the order of the labels. Needed for open_clip:NAME. Default:
    from the model's run or hf:NAME."""
    views: Annotated[Literal[1, 2], Flag(group="images")] = UNREAD
    """Views of an image whose predictions are averaged. 2: the image and its mirror; in training with `no_hflip`, the
    image and a shift of it. Training learns from both. Default: as in the model's run; for an adaptation 2 with
    ancon-auto if training augments, else 1."""
    prompts: Literal[1, 7, 80] | None = None
    """Number of averaged texts for each class of open_clip:NAME. 7 and 80: open_clip's for ImageNet. Default: 1, a
    photo of a ..."""


class OptimizationConfig(Settings):
    """The optimiser, its schedule and the length of a training."""

    FLAG = Flag(group="optimization")

    batch_size: Annotated[int | None, Flag("-b", metavar="B", common=True)] = Field(None, ge=1)
    """images in a step, in each process; by default 64, or all where there are fewer"""
    epochs: Annotated[int, Flag(common=True)] = Field(30, ge=1)
    """Passes over the images."""
    optimizer: Literal["sgd", "adamw"] = UNREAD
    """by default adamw for a network that normalises by layer-norm and not by batch-norm, as transformers do, else
    sgd"""
    lr: Annotated[float, Flag("--learning-rate", common=True)] = Field(UNREAD, gt=0)
    """Learning rate of new layers; a pre-trained backbone has a tenth of it. Default: 0.01, 0.0002 with
    optimizer=adamw, 0.001 with batch_norm=source"""
    lr_gamma: float = Field(10.0, ge=0)
    """gamma of the learning rate lr (1 + gamma step/steps)^-decay, for cdan and mdd lr (1 + gamma step)^-decay"""
    lr_decay: float = Field(0.75, ge=0)
    """exponent of the learning rate's decay"""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Nesterov momentum of SGD; of AdamW the decay of the mean gradient"""
    weight_decay: Annotated[float, Flag("--wd")] = Field(1e-3, ge=0)
    """weight decay; AdamW spares norms and biases"""
    hold_out: float = Field(0.1, ge=0, lt=1)
    """share of the images in the hold-out, which is not trained on and selects the epoch"""
    mixed_precision: Literal["no", "fp16", "bf16"] | None = None
    """floating-point type of the network's arithmetic; no is float32; by default bf16 on a GPU that has it, else no"""
    channels_last: bool | None = None
    """channels last in memory; by default on for networks with max-pooling or with eight 2-D convolutions or more"""
    compile: bool = False
    """compile the network by torch.compile, which needs Triton, or on a CPU a C++ compiler"""
    fused: bool | None = None
    """make a step of the optimiser in one kernel; by default on for networks of a million weights or more"""


class RunConfig(Settings):
    """The run directory, its seed and its output."""

    FLAG = Flag(group="run")

    log: Annotated[str | None, Flag(metavar="DIR", common=True, decides=False)] = None
    """run directory; by default runs/source or runs/adapted by the command, and in Python none, which stores
    nothing on disk"""
    overwrite: Annotated[bool, Flag(decides=False)] = False
    """replace the run that is in the run directory; if the new run is interrupted, the same command resumes it"""
    seed: Annotated[Seed, Flag(common=True)] = 0
    """seed of every random number"""
    deterministic: bool = False
    """use only algorithms that give the same numbers on a GPU each time; they are slower"""
    threads: Annotated[Threads | None, Flag(decides=False)] = None
    """threads of PyTorch on the CPU; by default PyTorch's choice; results repeat exactly with the same number"""
    workers: Annotated[Count, Flag("-j", decides=False)] = 2
    """processes that load images; training on two domains at once (CDAN, MDD) starts as many for each"""
    print_freq: Annotated[int, Flag("-p", decides=False)] = Field(20, ge=1)
    """steps between two readings of the loss for the progress line"""
    track: Annotated[Literal["tensorboard", "wandb", "mlflow"] | None, Flag(decides=False)] = None
    """log every epoch's numbers to this tracker too"""
    quiet: Annotated[bool, Flag(decides=False)] = False
    """show only errors"""
    verbose: Annotated[bool, Flag(decides=False)] = False
    """show a line of progress every print_freq steps"""

    @model_validator(mode="after")
    def _check_what_is_shown(self) -> Self:
        if self.quiet and self.verbose:
            raise UserError("`quiet` and `verbose` exclude each other")
        return self


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
    """learning rate of new layers; a pre-trained backbone learns at a tenth of it; 0.0002 with optimizer=adamw"""
    lr_gamma: float = redefined(OptimizationConfig, "lr_gamma", erm=10.0, cdan=1e-3, mdd=2e-4)
    weight_decay: float = redefined(OptimizationConfig, "weight_decay", erm=1e-3, cdan=1e-3, mdd=5e-4)
    hold_out: float = redefined(OptimizationConfig, "hold_out", erm=0.1)
    scale: tuple[Share, Share] = redefined(ImageConfig, "scale", (0.08, 1.0))
    loss: Annotated[Loss, Flag(group="source only (erm)", defaults={"erm": "cross-entropy"})] = UNREAD
    """loss of the source model; belief-matching trains the last layer to give a Dirichlet distribution"""
    label_smoothing: Annotated[BelowOne, Flag(group="source only (erm)", defaults={"erm": 0.0})] = UNREAD
    """label smoothing of the cross-entropy; SHOT's paper uses 0.1"""
    belief_coefficient: Annotated[float, Flag(group="source only (erm)", defaults={"erm": 0.001})] = Field(UNREAD, ge=0)
    """weight of belief matching's divergence"""
    iters_per_epoch: Annotated[Steps | None, Flag("-i", defaults={"erm": None, "cdan": 1000, "mdd": 1000})] = None
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
        trainings = get_args(PretrainConfig.model_fields["method"].annotation)
        if method not in trainings:
            raise unknown_name("pre-training method", str(method), trainings)
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

    @model_validator(mode="after")
    def _check_loss(self) -> Self:
        if self.label_smoothing and self.loss != "cross-entropy":
            raise UserError(f"`label_smoothing` belongs to the cross-entropy; leave it out with `loss={self.loss}`")
        return self

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

    scale: tuple[Share, Share] = redefined(ImageConfig, "scale", (0.5, 1.0))
    method: Annotated[str, Flag(common=True)] = "ancon-auto"
    """how to adapt: a method, or a composition such as gce+ancon"""
    criterion: Criterion = "infomax"
    """criterion that selects the epoch, without labels; last or none: the last epoch, and no image is held out; last is
    the default of ancon-auto"""
    adapted: Literal["all", "all-but-head", "norm-affine", "as-given"] = UNREAD
    """Parameters to train. as-given: those with requires_grad (default if some are frozen). Other values unfreeze.
    Default: by the method, all-but-head for most."""
    step_change: Annotated[float, Flag(group="optimization")] = Field(UNREAD, gt=0, lt=1)
    """Fit the learning rate so that one step changes the predictions on other images by this total variation, 0 to 1.
    `lr` limits the rate. Default: 0.02 for ancon-auto with SGD if `lr` is not given."""
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
    """Batch-norm statistics while adapting. `target`: of the batch. `source`: of the source model, fixed, at a default
    `lr` of 0.001. `mixed`: of the batch, after the source's are mixed into scale and shift."""
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
        options |= {name: given.pop(name) for name in [*given] if name not in AdaptConfig.model_fields}
        method = given.get("method") or AdaptConfig.model_fields["method"].default
        readable = methods.settings()
        for name in options:
            if name not in readable:
                raise unknown_name("setting", name, {**settings_of(AdaptConfig), **readable})
        defaults = {**methods.training_defaults(method), "adapted": None, "views": None, "step_change": None}
        defaults["options"] = methods.resolve(method, options)
        super().__init__(**{**defaults, **{name: value for name, value in given.items() if value is not None}})

    @model_validator(mode="after")
    def _check_adaptation(self) -> Self:
        if self.batch_norm != "mixed" and self.batch_norm_share is not None:
            raise UserError(f"`batch_norm_share` is for `batch_norm=mixed`, not for `batch_norm={self.batch_norm}`")
        if self.batch_norm != "target" and self.sync_batch_norm:
            raise UserError(f"`sync_batch_norm` is for the batch's statistics, not for `batch_norm={self.batch_norm}`")
        return self

    @property
    def held_out_share(self) -> float:
        """Share of the images that select the epoch and are not adapted on: none where no score selects it."""
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


class AssessConfig(PredictConfig):
    """Which model is assessed on which images."""

    model_config = ConfigDict(populate_by_name=True)
    FLAG = Flag(group="labels", common=True)

    checkpoint: Annotated[str | None, Flag(metavar="MODEL_OR_RUN", group="model", common=True)] = None
    """the model: a checkpoint, or the run directory that holds it"""
    root: Annotated[str | None, Flag(group="images", common=True)] = None
    """folder of images or an image list, or with --data and --target the folder of a dataset"""
    questions: Annotated[str | None, Flag(metavar="FILE")] = None
    """CSV file to write, with the images to label in their order"""
    answers: Annotated[str | None, Flag(metavar="FILE")] = None
    """CSV file with path,class on each line, of the first images in that order; cannot tell counts as wrong"""
    delta: float = Field(0.05, gt=0, lt=1)
    """probability that the interval from labels ever misses"""
    seed: Seed = 0
    """seed of the order of the images"""
    json_file: Annotated[str | None, Flag(metavar="FILE", group="output")] = Field(None, alias="json")
    """JSON file of the results"""


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

    @model_validator(mode="after")
    def _check_answers(self) -> Self:
        if self.answers is not None and self.labels is not None:
            raise UserError("`answers` and `labels` exclude each other")
        return self


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
        settings: dict[str, Any] = _underscored(tomllib.load(file))
    return settings


def _underscored(content: Any) -> Any:
    """This content with underscores for dashes in the names of all its tables."""
    if isinstance(content, list):
        return [_underscored(entry) for entry in content]
    if isinstance(content, dict):
        return {name.replace("-", "_"): _underscored(value) for name, value in content.items()}
    return content
