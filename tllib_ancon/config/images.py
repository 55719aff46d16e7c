"""How an image becomes a tensor: decoding, resizing, augmentation and normalisation."""

from typing import Annotated, Literal

from pydantic import Field

from tllib_ancon.config.settings import DECIDED_LATER, Flag, Settings
from tllib_ancon.config.types import Area, Fraction, Pixels, Positive, Share
from tllib_ancon.runtime.errors import BadSetting, named


class ImageConfig(Settings):
    """How an image becomes a tensor."""

    FLAG = Flag(group="images")

    val_resizing: Literal["default", "res.", "keep-ratio"] = DECIDED_LATER
    """Resizing and cropping for evaluation. "default" resizes to a square and takes its centre. res.: to a square.
    keep-ratio: by the shorter side, then the centre."""
    image_size: Annotated[Pixels, Flag("--resize-size", metavar="PX")] = DECIDED_LATER
    """Side in pixels of the images that the network gets, of the crop or with res. of the square."""
    crop_fraction: Annotated[Fraction, Flag(metavar="X")] = DECIDED_LATER
    """Side of the crop as a share of the side that is resized before it."""
    no_hflip: bool = DECIDED_LATER
    """Do not mirror training images at random. An adaptation mirrors none either if a mirror changes the predicted
    class of more than 30 % of the images."""
    cache: Annotated[str | None, Flag(metavar="DIR", decides=False)] = None
    """Folder that stores decoded and resized images for later runs, 0.2 MB each at 256 pixels. Default: memory, if they
    fit in a quarter of the free memory."""
    norm_mean: Annotated[tuple[Share] | tuple[Share, Share, Share] | None, Flag(metavar="X")] = None
    """mean of each channel for the normalisation, of pixels from 0 to 1 (those of pixels to 255 divided by 255), or one
    for grey"""
    norm_std: Annotated[tuple[Positive] | tuple[Positive, Positive, Positive] | None, Flag(metavar="X")] = None
    """standard deviation of each channel for the normalisation, of pixels from 0 to 1"""
    loader: Annotated[str | None, Flag(metavar="MODULE:FUNCTION", decides=False)] = None
    """Function that reads an image file: path -> PIL image or uint8 tensor (1 or 3, H, W), or a float tensor, which the
    model gets unchanged. Its module may lie in the current folder. Default: Pillow, as RGB with 8 bits."""


class AugmentationConfig(ImageConfig):
    """How an image becomes a tensor, and how training augments it."""

    FLAG = Flag(group="images")

    train_resizing: Literal["default", "cen.crop", "ran.crop", "res.", "keep-ratio"] = DECIDED_LATER
    """Resizing and cropping of training images. "default" resizes to a square and takes a random resized crop.
    cen.crop and ran.crop: to a square, then its centre or a random crop. res.: to a square. keep-ratio: by the shorter
    side, then a random resized crop."""
    scale: Annotated[Area, Flag(metavar=("MIN", "MAX"))] = DECIDED_LATER
    """smallest and largest area of a random crop, as a share of the image's"""
    padding: Annotated[int, Flag(metavar="PX")] = Field(DECIDED_LATER, ge=0, le=16_384)
    """Padding of training images in pixels, cropped back at random."""

    def check(self) -> None:
        super().check()
        for name in ("scale", "ratio"):
            pair = getattr(self, name, None)
            if pair is not None and pair[0] > pair[1]:
                raise BadSetting(f"{named(name, pair)} must be MIN and MAX with MIN <= MAX", setting=name)
