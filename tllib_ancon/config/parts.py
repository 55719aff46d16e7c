"""Settings that several stages share: which pictures, how they become tensors, which network, how it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tllib_ancon.config.base import LARGEST_SEED, Config, SettingsType
from tllib_ancon.data.resizing import EVALUATION_RESIZINGS, TRAIN_RESIZINGS
from tllib_ancon.errors import UserError
from tllib_ancon.settings import setting

MIXED_PRECISIONS = ("no", "fp16", "bf16")

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


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
