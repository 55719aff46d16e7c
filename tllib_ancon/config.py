"""Every setting of a training, once: its type, default, range and help text.

Python keywords, command-line flags, TOML files, ``config.json`` and the plans of the paper's tables are all read from
the classes of this file.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, TypeVar

from tllib_ancon.data.resizing import EVALUATION_RESIZINGS, TRAIN_RESIZINGS
from tllib_ancon.errors import UserError, unknown_name
from tllib_ancon.settings import Settings, default_of, redefined, setting, settings_of, spec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MIXED_PRECISIONS = ("no", "fp16", "bf16")
LOSSES = ("cross-entropy", "belief-matching")
PRETRAINING = ("erm", "cdan", "mdd")
ADAPTED_PARAMETERS = ("all", "all-but-head", "norm-affine")
BATCH_NORMS = ("target", "source", "mixed")
CAREFUL_LR = 0.001
"""At which a network trains by statistics that are not those of its images; at 0.01 all methods diverge."""
CRITERIA = ("infomax", "corr_c", "mean_entropy", "snd", "nuclear_norm", "last", "none")
CRITERIA_OF_AN_EPOCH = ("infomax", "corr_c", "mean_entropy", "marginal_entropy", "snd", "nuclear_norm")
"""Those that a run records of every epoch: the names of :data:`tllib_ancon.selection.CRITERIA`, without torch."""
LARGEST_SEED = 2**32 - 1

STANDARD_OUTPUT = "-"
"""The file that stands for standard output."""

INHERITED = (
    *("arch", "arch_option", "bottleneck_dim", "no_pool", "norm_mean", "norm_std"),
    *("image_size", "resize_size", "crop_fraction", "val_resizing"),
)
"""Settings of a model and of the pictures that it knows: a later stage takes them from the run that trained the
model."""

ASSUMED: dict[str, Any] = {
    "arch": "resnet18",
    "arch_option": (),
    "bottleneck_dim": 256,
    "no_pool": False,
    "image_size": 224,
    "resize_size": 224,
    "crop_fraction": 0.875,
}
"""What stands for an inherited setting where there is no run to take it from. (``norm_mean`` and ``norm_std`` follow
the architecture, ``train_resizing`` and ``val_resizing`` the dataset.)"""

OF_THE_NETWORK = ("image_size", "crop_fraction")
"""Settings that a network's own metadata decide before anything is assumed."""

SettingsType = TypeVar("SettingsType", bound="Config")


class Config(Settings):
    """Base of the classes of this file: settings by keyword, checked on construction.

    Raises:
        UserError: an unknown setting (the nearest one), or a value of another type, out of range or not among the
            choices; the message names the setting in backticks
    """

    def __init__(self, **given: Any) -> None:
        known = settings_of(type(self))
        for name in given:
            if name not in known:
                raise unknown_name("setting", name, known)
        for name, field in known.items():
            value = given.get(name, default_of(field))
            if value is MISSING:
                raise UserError(f"`{name}` is needed: {spec(field).help}")
            object.__setattr__(self, name, value)
        self.__post_init__()

    def to_dict(self) -> dict[str, Any]:
        """Every setting by name, of types that JSON has."""
        return {name: _plain(getattr(self, name)) for name in settings_of(type(self))}

    def replace(self: SettingsType, **changes: Any) -> SettingsType:
        """The same settings but for these."""
        return type(self)(**{**self._given(), **changes})

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in settings_of(type(self))}


@dataclass(frozen=True, kw_only=True, init=False)
class DataConfig(Config):
    """Which pictures."""

    root: str | None = setting(None, "folder of the dataset", metavar="ROOT", group="domains", common=True)
    data: str | None = setting(
        None,
        "a dataset of TLLib, such as Office31, OfficeHome, VisDA2017 or DomainNet, or how ROOT is laid out; "
        "ImageList: any folder with image_list/<domain>.txt; ImageFolder: class folders in ROOT/DOMAIN; Folder: any "
        "tree of pictures; hf:NAME: a Hugging Face dataset; ImageNetC: corruption/severity/<WordNet id>/*; "
        "CorruptedImages: the same with other classes",
        flags=("-d",),
        metavar="DATA",
        group="domains",
        common=True,
    )
    source: tuple[str, ...] = setting((), "names of the source domains", flags=("-s",), group="domains")
    target: tuple[str, ...] = setting((), "names of the target domains", flags=("-t",), group="domains", common=True)
    subset: str | None = setting(
        None,
        "use only the images of ImageNetC that this file lists, class/name on each line; by default all",
        metavar="FILE",
        group="domains",
    )
    num_classes: int | None = setting(
        None,
        "number of classes of an ImageList without image_list/classes.txt",
        metavar="K",
        at_least=1,
        at_most=1_000_000,
        group="domains",
    )
    allow_outside_root: bool = setting(False, "accept image lists that name files outside ROOT", group="domains")
    skip_corrupt: bool = setting(
        False, "decode every image before training and leave out those that cannot be decoded", group="domains"
    )
    image_column: str | None = setting(
        None,
        "column of hf:NAME that holds the images; by default the only column of images",
        metavar="NAME",
        group="domains",
    )
    label_column: str | None = setting(
        None,
        "column of hf:NAME that holds the class labels; by default the only column of labels",
        metavar="NAME",
        group="domains",
    )
    allow_download: bool = setting(
        False, "download hf:NAME from the hub if it is not in the cache", group="domains", decides=False
    )


@dataclass(frozen=True, kw_only=True, init=False)
class ImageConfig(Config):
    """How a picture becomes a tensor."""

    train_resizing: str | None = setting(
        None,
        "how training images are resized and cropped; default: to a square, then a random resized crop; cen.crop, "
        "ran.crop: to a square, then its centre or a random crop; res.: to a square; keep-ratio: by the shorter side, "
        "then a random resized crop; by default keep-ratio for ImageFolder, Folder and hf:NAME, else default",
        choices=TRAIN_RESIZINGS,
        group="images",
        per_stage=True,
    )
    val_resizing: str | None = setting(
        None,
        "how images are resized and cropped for evaluation; default: to a square, then its centre; res.: to a square; "
        "keep-ratio: by the shorter side, then the centre; by default keep-ratio or default, as in training",
        choices=EVALUATION_RESIZINGS,
        group="images",
    )
    resize_size: int | None = setting(
        None,
        "side in pixels of the square that the resizing res. makes; by default the model's, or "
        f"{ASSUMED['resize_size']}",
        metavar="PX",
        at_least=1,
        at_most=16_384,
        group="images",
    )
    image_size: int | None = setting(
        None,
        f"side of the crop in pixels; by default the model's, or {ASSUMED['image_size']}",
        metavar="PX",
        at_least=1,
        at_most=16_384,
        group="images",
    )
    crop_fraction: float | None = setting(
        None,
        "side of the crop for evaluation, as a share of the side of the resized image; by default the model's, or "
        f"{ASSUMED['crop_fraction']}",
        metavar="X",
        above=0,
        at_most=1,
        group="images",
    )
    scale: tuple[float, float] | None = setting(
        None,
        "smallest and largest area of a random crop, as a share of the picture's",
        metavar=("MIN", "MAX"),
        above=0,
        at_most=1,
        group="images",
        per_stage=True,
    )
    ratio: tuple[float, float] = setting(
        (3 / 4, 4 / 3),
        "smallest and largest width of a random crop, as a multiple of its height",
        metavar=("MIN", "MAX"),
        above=0,
        group="images",
    )
    padding: int = setting(
        0,
        "pixels by which training images are padded, to be cropped back at random",
        metavar="PX",
        at_least=0,
        at_most=16_384,
        group="images",
    )
    rotation: float = setting(
        0.0,
        "largest angle in degrees by which training images are rotated, either way",
        metavar="DEG",
        at_least=0,
        at_most=180,
        group="images",
    )
    no_hflip: bool = setting(False, "do not flip training images at random", group="images")
    cache: str | None = setting(
        None,
        "folder that keeps decoded and resized images, 0.2 MB each at 256 pixels, for later epochs and runs",
        metavar="DIR",
        group="images",
        decides=False,
    )
    device_augmentation: bool = setting(
        False,
        "crop and flip training images on the GPU, or without one in the main process; the crops are the same up to "
        "rounding",
        group="images",
    )
    norm_mean: tuple[float, ...] | None = setting(
        None,
        "mean of each channel for the normalisation, of pixels from 0 to 1; by default that of the architecture's "
        "training",
        metavar="X",
        group="images",
    )
    norm_std: tuple[float, ...] | None = setting(
        None,
        "standard deviation of each channel for the normalisation, of pixels from 0 to 1; by default as for the mean",
        metavar="X",
        above=0,
        group="images",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale", "ratio"):
            values = getattr(self, name)
            if values is not None and values[0] > values[1]:
                raise UserError(f"`{name}` must be MIN and MAX with MIN <= MAX, got {values[0]} {values[1]}")
        for name in ("norm_mean", "norm_std"):
            values = getattr(self, name)
            if values is not None and len(values) not in (1, 3):
                raise UserError(f"`{name}` needs 3 values, or 1 for grey, got {len(values)}")


@dataclass(frozen=True, kw_only=True, init=False)
class ModelConfig(Config):
    """Which network."""

    arch: str | None = setting(
        None,
        "network: a ResNet of torchvision, any model of timm, timm/NAME, torchvision/NAME, or small_cnn; by default "
        f"the model's, or {ASSUMED['arch']}",
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
class OptimizationConfig(Config):
    """SGD, its schedule and the length of a training."""

    batch_size: int = setting(
        64,
        "images in a step, in each process",
        flags=("-b",),
        metavar="B",
        at_least=1,
        group="optimization",
        common=True,
        per_stage=True,
    )
    epochs: int = setting(
        30,
        "passes over the images",
        metavar="N",
        at_least=1,
        group="optimization",
        common=True,
        per_stage=True,
    )
    lr: float = setting(
        0.01,
        "learning rate of new layers; a pre-trained backbone learns at a tenth of it",
        flags=("--learning-rate",),
        above=0,
        group="optimization",
        common=True,
        per_stage=True,
    )
    lr_gamma: float = setting(
        10.0,
        "gamma of the learning rate lr (1 + gamma step/steps)^-decay, for cdan and mdd lr (1 + gamma step)^-decay",
        at_least=0,
        group="optimization",
        per_stage=True,
    )
    lr_decay: float = setting(
        0.75, "exponent of the learning rate's decay", at_least=0, group="optimization", per_stage=True
    )
    momentum: float = setting(
        0.9, "Nesterov momentum of SGD", at_least=0, below=1, group="optimization", per_stage=True
    )
    weight_decay: float = setting(
        1e-3,
        "weight decay of SGD",
        flags=("--wd",),
        at_least=0,
        group="optimization",
        per_stage=True,
    )
    hold_out: float = setting(
        0.1,
        "share of the images in the hold-out, which is not trained on and selects the epoch",
        at_least=0,
        below=1,
        group="optimization",
        per_stage=True,
    )
    mixed_precision: str = setting(
        "no",
        "floating-point type of the network's arithmetic; no is float32",
        choices=MIXED_PRECISIONS,
        group="optimization",
        per_stage=True,
    )
    channels_last: bool = setting(
        False,
        "store images with their channels last in memory, which is faster on many GPUs",
        group="optimization",
        per_stage=True,
    )
    compile: bool = setting(
        False,
        "compile the network by torch.compile, which needs Triton, or on a CPU a C++ compiler",
        group="optimization",
        per_stage=True,
    )
    fused: bool = setting(
        False, "make a step of SGD in one kernel, where the device has it", group="optimization", per_stage=True
    )


@dataclass(frozen=True, kw_only=True, init=False)
class RunConfig(Config):
    """Where a run is kept, its seed and what is shown."""

    log: str | None = setting(
        None,
        "run directory; by default runs/source, runs/adapted or runs/both by the command, and in Python none, which "
        "keeps nothing on disk",
        metavar="DIR",
        group="run",
        common=True,
        decides=False,
    )
    overwrite: bool = setting(
        False,
        "replace the run that is in the run directory; if the new run is cut off, the same command continues it",
        group="run",
        decides=False,
    )
    seed: int = setting(0, "seed of every random number", at_least=0, at_most=LARGEST_SEED, group="run", common=True)
    deterministic: bool = setting(
        False, "use only algorithms that give the same numbers on a GPU each time; they are slower", group="run"
    )
    threads: int | None = setting(
        None,
        "threads of PyTorch on the CPU; by default PyTorch's choice; results repeat exactly with the same number",
        metavar="N",
        at_least=1,
        at_most=4096,
        group="run",
        decides=False,
    )
    workers: int = setting(
        2,
        "processes that load images; training on two domains at once (CDAN, MDD) starts as many for each",
        flags=("-j",),
        metavar="N",
        at_least=0,
        at_most=4096,
        group="run",
        decides=False,
    )
    print_freq: int = setting(
        20,
        "steps between two readings of the loss for the progress line",
        flags=("-p",),
        metavar="N",
        at_least=1,
        group="run",
        decides=False,
    )
    track: str | None = setting(
        None,
        "log every epoch's numbers to this tracker too",
        choices=("tensorboard", "wandb", "mlflow"),
        group="run",
        decides=False,
    )
    quiet: bool = setting(False, "show only errors", group="run", decides=False)
    verbose: bool = setting(False, "show a line of progress every print_freq steps", group="run", decides=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quiet and self.verbose:
            raise UserError("`quiet` and `verbose` exclude each other")


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
        return self.replace(**{name: value for name, value in ASSUMED.items() if getattr(self, name) is None})

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if self._reads(name)}

    def _reads(self, name: str) -> bool:
        by_method = spec(settings_of(PretrainConfig)[name]).defaults
        return by_method is None or self.method in by_method

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in super()._given().items() if self._reads(name)}


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
        "criterion that selects the epoch, without labels; last: the last epoch; none: the last epoch, and no image is "
        "held out",
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
        own = {**super().to_dict(), **{name: _plain(value) for name, value in self.options.items()}}
        match self.start:
            case PretrainConfig():
                return {**own, "start": self.start.to_dict()}
            case str():
                return {**own, "start": self.start}
        return own

    def _given(self) -> dict[str, Any]:
        return {**super()._given(), "options": self.options, "start": self.start}


@dataclass(frozen=True, kw_only=True, init=False)
class PredictConfig(StartConfig, ImageConfig, ModelConfig, DataConfig):
    """Which model says what it sees on which pictures; of ``evaluate`` and ``predict``."""

    batch_size: int = setting(64, "images in a step", flags=("-b",), metavar="B", at_least=1, group="images")
    workers: int = setting(2, "processes that load images", flags=("-j",), metavar="N", at_least=0, at_most=4096)
    threads: int | None = setting(
        None, "threads of PyTorch on the CPU; by default PyTorch's choice", metavar="N", at_least=1, at_most=4096
    )
    quiet: bool = setting(False, "show only errors and results")


@dataclass(frozen=True, kw_only=True, init=False)
class CertifyConfig(Config):
    """Which of a run's two models is better, by labels of a few images on which they disagree."""

    run: str = setting(help="run directory of an adaptation", metavar="RUN", group="run", common=True)
    root: str | None = setting(
        None,
        "folder of the dataset or of the images; by default the one that the run names",
        metavar="ROOT",
        group="run",
    )
    checkpoint: str | None = setting(
        None, "the start model; by default the one that the run names", metavar="FILE", group="run"
    )
    page: bool = setting(
        False, "ask for labels on a web page that only this machine can open", group="labels", common=True
    )
    port: int = setting(
        8765, "port of the page; 0 chooses a free one", metavar="N", at_least=0, at_most=65_535, group="labels"
    )
    answers: str | None = setting(
        None,
        "CSV file with path,class on each line; in place of a class it may say another or cannot tell",
        metavar="FILE",
        group="labels",
        common=True,
    )
    labels: str | None = setting(
        None, "image list whose labels answer every question, in place of a person", metavar="FILE", group="labels"
    )
    questions: str | None = setting(
        None, "CSV file to write, with the images to label in their order", metavar="FILE", group="labels", common=True
    )
    delta: float = setting(0.05, "largest probability of a false verdict", above=0, below=1, group="test", common=True)
    margin: float = setting(
        0.0,
        "difference of accuracy that does not matter, as a share of all images: 0.01 is one percentage point",
        at_least=0,
        below=1,
        group="test",
        common=True,
    )
    seed: int = setting(0, "seed of the order of the images", at_least=0, at_most=LARGEST_SEED, group="test")
    batch_size: int = setting(64, "images in a step", flags=("-b",), metavar="B", at_least=1)
    workers: int = setting(2, "processes that load images", flags=("-j",), metavar="N", at_least=0, at_most=4096)
    threads: int | None = setting(
        None, "threads of PyTorch on the CPU; by default PyTorch's choice", metavar="N", at_least=1, at_most=4096
    )
    quiet: bool = setting(False, "show only errors and results")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers is not None and self.labels is not None:
            raise UserError("`answers` and `labels` exclude each other")


@dataclass(frozen=True, kw_only=True, init=False)
class PredictionsConfig(PredictConfig):
    """Which model predicts which pictures, and where the predictions go."""

    root: str | None = setting(
        None,
        "pictures: a folder, with its subfolders, an image list, or with --data and --target the folder of a dataset",
        metavar="IMAGES",
        group="pictures",
        common=True,
    )
    out: str = setting(
        "predictions.csv",
        "file to write, as .csv, .parquet or .npz by its ending; - writes CSV to standard output",
        metavar="FILE",
        group="predictions",
        common=True,
    )
    probabilities: bool = setting(False, "write the probability of every class, too", group="predictions", common=True)
    overwrite: bool = setting(False, "replace the file if it exists", group="predictions", common=True)


@dataclass(frozen=True, kw_only=True, init=False)
class ExportConfig(Config):
    """Which model is written in which form."""

    run: str = setting(help="run directory, or a checkpoint in one", metavar="RUN", group="model", common=True)
    format: str = setting(
        "onnx",
        "format of the file",
        choices=("onnx", "torch-export", "torchscript", "state-dict"),
        group="file",
        common=True,
    )
    out: str = setting(help="file to write", metavar="FILE", group="file", common=True)
    overwrite: bool = setting(False, "replace the file if it exists", group="file")


def read_file(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, by name; a dash in a name counts as an underscore, as on the command line.

    Raises:
        UserError: the file is missing or is no TOML (where)
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"configuration file {path} cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"configuration file {path} is not TOML ({error})") from error
    return underscored(content)


def underscored(content: Mapping[str, Any]) -> dict[str, Any]:
    """The same entries, also of tables inside, with underscores for dashes in their names."""
    return {
        name.replace("-", "_"): underscored(value) if isinstance(value, Mapping) else value
        for name, value in content.items()
    }


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
