"""Settings that several configurations share: of data, model, images, optimisation and run."""

from typing import Annotated, Any, Literal

from annotated_types import Gt, Interval
from pydantic import Field

from tllib_ancon.config.settings import UNREAD, Flag, Settings
from tllib_ancon.data.pixels import Decoding
from tllib_ancon.runtime.errors import UserError

RATES = {"sgd": 0.01, "adamw": 2e-4}
"""Optimiser -> learning rate of new layers by default."""

Positive = Annotated[float, Gt(0)]
Fraction = Annotated[float, Interval(gt=0, le=1)]
Count = Annotated[int, Interval(ge=0, le=4096)]
Threads = Annotated[int, Interval(ge=1, le=4096)]
Pixels = Annotated[int, Interval(ge=1, le=16_384)]
Band = Annotated[int, Interval(ge=1, le=65_535)]
Width = Annotated[int, Interval(ge=1, le=1_000_000)]
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
File = Annotated[str | None, Flag(metavar="FILE")]


class DataConfig(Settings):
    """Which images."""

    FLAG = Flag(group="domains")

    root: Annotated[str | None, Flag(common=True)] = None
    """folder of the dataset"""
    data: Annotated[str | None, Flag("-d", common=True)] = None
    """Dataset of TLLib, such as Office31, OfficeHome, VisDA2017 or DomainNet, or the layout of ROOT. ImageList:
    image_list/<domain>.txt. ImageFolder: class folders in ROOT/DOMAIN. Folder: any tree of images. Arrays: ROOT is a
    file .npy of features, series or pixels. hf:NAME: a Hugging Face dataset. ImageNetC:
    corruption/severity/<WordNet id>/*. CorruptedImages: the same with other classes."""
    source: Annotated[tuple[str, ...], Flag("-s")] = ()
    """names of the source domains"""
    target: Annotated[tuple[str, ...], Flag("-t", common=True)] = ()
    """names of the target domains"""
    subset: File = None
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


class JsonConfig(Settings):
    """Where the results go, beside the terminal."""

    json_file: Annotated[str | None, Flag(metavar="FILE", group="output", common=True)] = Field(None, alias="json")
    """JSON file of the results"""


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
    """probability of dropping a feature after the bottleneck in training, and in an adaptation with dropout; by
    default the model's"""
    no_pool: bool | None = None
    """leave out the pooling after the backbone; by default as in the model's run"""
    scratch: bool = False
    """start without pre-trained weights; the backbone then learns at the full rate"""
    pretrained_weights: File = None
    """file of ImageNet weights of the backbone, .safetensors or .pth; by default those of torchvision or timm"""


class ImageConfig(Settings):
    """How an image becomes a tensor."""

    FLAG = Flag(group="images")

    train_resizing: Literal["default", "cen.crop", "ran.crop", "res.", "keep-ratio"] | None = None
    """Resizing and cropping of training images. "default" resizes to a square and takes a random resized crop.
    cen.crop and ran.crop: to a square, then its centre or a random crop. res.: to a square. keep-ratio: by the shorter
    side, then a random resized crop. Default: keep-ratio for ImageFolder, Folder and hf:NAME, else default."""
    val_resizing: Literal["default", "res.", "keep-ratio"] | None = None
    """Resizing and cropping for evaluation. "default" resizes to a square and takes its centre. res.: to a square.
    keep-ratio: by the shorter side, then the centre. Default: as in training."""
    resize_size: Annotated[Pixels | None, Flag(metavar="PX")] = None
    """side in pixels of the square that the resizing res. makes; by default the model's, or 224"""
    image_size: Annotated[Pixels | None, Flag(metavar="PX")] = None
    """Side of the crop in pixels. Default: the model's, else the side of square arrays, or 224"""
    crop_fraction: Fraction | None = None
    """Side of the evaluation crop divided by the side of the resized image. Default: the model's, 1 for an unknown
    network, else 0.875"""
    scale: Annotated[tuple[Fraction, Fraction] | None, Flag(metavar=("MIN", "MAX"))] = None
    """smallest and largest area of a random crop, as a share of the image's"""
    ratio: Annotated[tuple[Positive, Positive], Flag(metavar=("MIN", "MAX"))] = (3 / 4, 4 / 3)
    """smallest and largest width of a random crop, as a multiple of its height"""
    padding: Annotated[int | None, Flag(metavar="PX")] = Field(None, ge=0, le=16_384)
    """Padding of training images in pixels, cropped back at random. Default: 0, or 4 below 64 pixels for an unknown
    network."""
    rotation: Annotated[float, Flag(metavar="DEG")] = Field(0.0, ge=0, le=180)
    """largest angle in degrees by which training images are rotated, either way"""
    no_hflip: bool | None = None
    """Do not mirror training images at random. Default: as in the model's run; in an adaptation also on if a mirror
    changes the predicted class of more than 30 % of the images."""
    cache: Annotated[str | None, Flag(metavar="DIR", decides=False)] = None
    """Folder that stores decoded and resized images for later runs, 0.2 MB each at 256 pixels. Default: memory, if they
    fit in a quarter of the free memory."""
    norm_mean: Annotated[tuple[float, ...] | None, Flag(metavar="X")] = None
    """mean of each channel for the normalisation, of pixels from 0 to 1; by default that of the architecture's
    training"""
    norm_std: Annotated[tuple[Positive, ...] | None, Flag(metavar="X")] = None
    """standard deviation of each channel for the normalisation, of pixels from 0 to 1; by default as for the mean"""

    pixel_range: Annotated[tuple[float, float] | None, Flag(metavar=("MIN", "MAX"))] = None
    """Values of pixels that become black and white, of images with more than 8 bits a channel. Default: as in the
    model's run, else from a sample of the images, such as 0 4095 for 12 bits in files of 16."""
    bands: Annotated[tuple[Band, ...] | None, Flag(metavar="N")] = None
    """Bands of a TIFF that become red, green and blue, or one for grey, counted from 1. Default: as in the model's run,
    else the first three."""
    max_megapixels: Annotated[int, Flag(metavar="MP", decides=False)] = Field(256, ge=1, le=100_000)
    """Largest image that is decoded, in millions of pixels; it takes 3 MB of memory for each, and for each worker."""

    def check(self) -> None:
        if self.pixel_range is not None and self.pixel_range[0] >= self.pixel_range[1]:
            least, most = self.pixel_range
            raise UserError(f"`pixel_range` must be MIN and MAX with MIN < MAX, got {least:g} {most:g}")
        if self.bands is not None and len(self.bands) not in (1, 3):
            raise UserError(f"`bands` must be 3 numbers, or 1 for grey, got {len(self.bands)}")
        for name in ("scale", "ratio"):
            least, most = getattr(self, name) or (0, 1)
            if least > most:
                raise UserError(f"`{name}` must be MIN and MAX with MIN <= MAX, got {least} {most}")
        for name in ("norm_mean", "norm_std"):
            count = len(getattr(self, name) or "rgb")
            if count not in (1, 3):
                raise UserError(f"`{name}` must have 3 values, or 1 for grey, got {count}")

    @property
    def decoding(self) -> Decoding:
        """How image files become bytes."""
        return Decoding(self.pixel_range, self.bands, self.max_megapixels)


class NetworkConfig(Settings):
    """Of which network the weights are, where neither a run nor a library can tell."""

    model: Annotated[str | None, Flag(metavar="MODULE:FUNCTION", group="model", decides=False)] = None
    """Function that returns your network, for the weights of a checkpoint. Its module may lie in the current folder.
    Default: the network that the run records, or the architecture's."""


class StartConfig(NetworkConfig):
    """From which trained model."""

    FLAG = Flag(group="model")

    checkpoint: Annotated[str | None, Flag(metavar="FILE", common=True)] = None
    """Source model: a checkpoint, or the run directory that holds it. imagenet: the network with its own ImageNet
    head. Not needed if `arch` names a model with weights, hf:NAME or open_clip:NAME/WEIGHTS."""
    override: bool = False
    """accept settings of the model and its images that contradict the run that trained it"""
    class_names: File = None
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
    `optimizer=adamw`, 0.001 with `batch_norm=source`"""
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
    """processes that load images; CDAN, MDD and training on answers read two sets of images at once and start as many
    for each"""
    print_freq: Annotated[int, Flag("-p", decides=False)] = Field(20, ge=1)
    """steps between two readings of the loss for the progress line"""
    track: Annotated[Literal["tensorboard", "wandb", "mlflow"] | None, Flag(decides=False)] = None
    """log every epoch's numbers to this tracker too"""
    quiet: Annotated[bool, Flag(decides=False)] = False
    """show only errors"""
    verbose: Annotated[bool, Flag(decides=False)] = False
    """show a line of progress every `print_freq` steps"""

    def check(self) -> None:
        super().check()
        if self.quiet and self.verbose:
            raise UserError("`verbose` and `quiet` contradict each other; pass one of them")
