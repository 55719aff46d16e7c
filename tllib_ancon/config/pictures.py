"""Which pictures, and how they become tensors."""

from __future__ import annotations

from dataclasses import dataclass

from tllib_ancon.config.base import Config
from tllib_ancon.config.inherited import ASSUMED
from tllib_ancon.data.resizing import EVALUATION_RESIZINGS, TRAIN_RESIZINGS
from tllib_ancon.errors import UserError
from tllib_ancon.settings import setting


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
