"""Samples of images, and the range of values by which deep ones become bytes: one for a data set."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from tllib_ancon.config.images import ImageConfig
from tllib_ancon.runtime.errors import BadImages, BadSetting, named

Values = NDArray[Any]
PixelRange = tuple[float, float]

DEPTHS = (8, 10, 12, 14, 16, 20, 24, 32)
"""Bits of a sensor; the smallest that hold every value of the sampled images decide the range."""

MOST_SAMPLED = 64
"""Images of a data set from which its range is decided."""

OPAQUE = 255
"""Opacity of a pixel that hides what is behind it."""

BEYOND = 2.0
"""Values above this multiple of a recorded range's upper end belong to another scale."""


@dataclass(frozen=True)
class Decoding:
    """How image files become bytes.

    Args:
        pixel_range: values of deep samples, of more than 8 bits, that become black and white. Default: decided by the
            images of the data set
        bands: bands of a TIFF, counted from 1. Default: the first three
    """

    pixel_range: PixelRange | None = None
    bands: tuple[int, ...] | None = None

    @classmethod
    def of(cls, config: ImageConfig) -> Decoding:
        """As the settings of images say."""
        return cls(config.pixel_range, config.bands)


@dataclass(frozen=True)
class Samples:
    """Samples of one image: an image of 8 bits that Pillow converts to RGB, or ``values`` (H, W) or (H, W, 3)."""

    image: Image.Image | None = None
    values: Values | None = None
    bands: int = 0  # of a TIFF that has more bands than are used
    has_bands: bool = False  # whether it is a TIFF of several bands, of which the setting chooses
    has_more_pages: bool = False  # pages of a TIFF or frames of an animation, of which the first is used
    hides_colours: bool = False  # under transparent pixels, where that was looked at

    @property
    def is_turned(self) -> bool:
        """Whether the file says that people should see the image turned or mirrored."""
        if self.image is None:
            return False
        with suppress(Exception):  # Pillow's reader of EXIF raises many types
            return self.image.getexif().get(ExifTags.Base.Orientation, 1) not in (0, 1)
        return False

    def has_transparent_pixels(self) -> bool:
        """Whether people see something else than the colours of an image of 8 bits; its pixels are decoded."""
        if self.image is None or not self.image.has_transparency_data:
            return False
        opacity: Any = self.image.convert("RGBA").getchannel("A")
        least, _ = opacity.getextrema()
        return bool(least < OPAQUE)

    def to_rgb(self, pixel_range: PixelRange | None) -> Image.Image:
        """Three channels of 8 bits. Deep values below and above the range are clipped."""
        if self.values is None:
            assert self.image is not None
            return self.image.convert("RGB")
        if not np.isfinite(self.values).all():
            raise ValueError("it holds NaN or infinity; fill these pixels in, or save it with 8 bits a channel")
        if pixel_range is None:
            raise BadImages(
                "it has more than 8 bits a channel, and the other images have 8",
                f"pass the values that become black and white as {named('pixel_range')}",
            )
        low, high = pixel_range
        factor = np.float32(255 / (high - low))
        scaled = (self.values.astype(np.float32) - np.float32(low)) * factor
        scaled += 1e-4  # so that rounding leaves whole numbers where they are
        return Image.fromarray(scaled.clip(0, 255).astype(np.uint8)).convert("RGB")


@dataclass(frozen=True)
class PixelValues:
    """What the sampled images of a data set hold, and the range that follows from it.

    Attributes:
        images: number of images that were opened
        deep: number of these with more than 8 bits a sample
        is_float: whether one of these holds floating-point numbers
        least, most: smallest and largest value of the deep images
        bands: largest number of bands of a TIFF of which not all are used; 0 for none
        several_pages: number of images in files with further pages or frames, which are not used
        turned: number of images with an EXIF orientation, which is not applied
        transparent: number of images with transparent pixels, whose colours are used
        banded: number of TIFFs with several bands
    """

    images: int = 0
    deep: int = 0
    is_float: bool = False
    least: float = 0.0
    most: float = 0.0
    bands: int = 0
    several_pages: int = 0
    turned: int = 0
    transparent: int = 0
    banded: int = 0

    @classmethod
    def of(cls, samples: Iterable[Samples]) -> PixelValues:
        images = 0
        bands = 0
        several_pages = 0
        turned = 0
        transparent = 0
        banded = 0
        is_float = False
        ends: list[tuple[float, float]] = []
        for sample in samples:
            images += 1
            bands = max(bands, sample.bands)
            several_pages += sample.has_more_pages
            turned += sample.is_turned
            transparent += sample.hides_colours
            banded += sample.has_bands
            values = sample.values
            if values is not None and np.isfinite(values).all():
                is_float = is_float or values.dtype.kind == "f"
                ends.append((float(values.min()), float(values.max())))
        least = min((low for low, _ in ends), default=0.0)
        most = max((high for _, high in ends), default=0.0)
        return cls(images, len(ends), is_float, least, most, bands, several_pages, turned, transparent, banded)

    @property
    def pixel_range(self) -> PixelRange | None:
        """Values that become black and white; None where every sampled image has 8 bits.

        Raises:
            UserError: negative values, whose range no rule decides
        """
        if not self.deep:
            return None
        if self.least < 0:
            raise BadImages(
                f"pixel values range from {self.least:g} to {self.most:g}, and negative ones have no usual range",
                f"pass the values that become black and white as {named('pixel_range')}",
            )
        if self.is_float and self.most <= 1:
            return (0.0, 1.0)
        depth = next((bits for bits in DEPTHS if self.most <= 2.0**bits - 1), None)
        if depth is None:  # numbers beyond every sensor
            return (0.0, self.most)
        return (0.0, 2.0**depth - 1)

    def lines(self, pixel_range: PixelRange | None, bands: tuple[int, ...] | None) -> list[str]:
        """Lines for the user about images that are no plain ones of 8 bits."""
        lines = []
        if self.deep and pixel_range is not None:
            kind = "numbers" if self.is_float else "integers"
            low, high = pixel_range
            lines.append(
                f"pixels are {kind} from {self.least:g} to {self.most:g} in {self.deep:,} of {self.images:,} sampled "
                f"images: {low:g} becomes black and {high:g} white; {named('pixel_range')} changes it"
            )
        if self.bands:
            used = ", ".join(map(str, bands or usual_bands(self.bands)))
            lines.append(
                f"the TIFFs have {self.bands} bands, of which {used} are used; {named('bands')} chooses others"
            )
        if self.several_pages:
            lines.append(self.line_on_pages)
        if self.turned:
            lines.append(
                f"{self.turned:,} of {self.images:,} sampled images have an EXIF orientation, which is not applied, as "
                "in torchvision's folders; PIL.ImageOps.exif_transpose turns them, to save them upright"
            )
        if self.transparent:
            lines.append(
                f"{self.transparent:,} of {self.images:,} sampled images have transparent pixels, whose hidden colours "
                "are used, as in torchvision's folders; to have them on white, save them without transparency"
            )
        return lines

    @property
    def line_on_pages(self) -> str:
        return (
            f"{self.several_pages:,} of {self.images:,} sampled images are in files of several pages or frames, of "
            "which the first is used; save the others as files of their own"
        )


def chosen_range(
    values: PixelValues, setting: PixelRange | None, recorded: PixelRange | None
) -> tuple[PixelRange | None, list[str]]:
    """The range of a data set and lines about it: the user's, or that of the model's run, or by sampled images.

    The range of the run is used for images on its scale.

    Raises:
        UserError: a range for images of 8 bits alone
    """
    if setting is not None and values.images and not values.deep:
        raise BadSetting(
            f"{named('pixel_range')} has no effect on images with 8 bits a channel",
            "leave it out",
            setting="pixel_range",
        )
    if setting is not None or not values.deep:
        return setting, []
    if recorded is None:
        return values.pixel_range, []
    low, high = recorded
    if values.least >= low and values.most <= BEYOND * high:
        return (low, high), []
    by_images = values.pixel_range
    line = f"the model's run has pixel_range {low:g} {high:g}, and these images are on another scale"
    return by_images, [line]


def usual_bands(count: int) -> tuple[int, ...]:
    if count < 3:
        return (1,)
    return (1, 2, 3)
