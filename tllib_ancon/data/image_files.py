"""Image files read as samples, by Pillow, or by tifffile for TIFFs that Pillow does not read in full."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, BinaryIO
from unittest.mock import patch

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from tllib_ancon.data.pixels import Decoding, Samples, Values, usual_bands
from tllib_ancon.runtime.errors import BadImages, BadSetting, named
from tllib_ancon.runtime.extras import require

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
"""What is decoded. Pillow knows more, and starts another program (Ghostscript) for one of them."""

BIG_TIFF_BEGINNINGS = (b"II+\0", b"MM\0+")
TIFF_BEGINNINGS = (b"II*\0", b"MM\0*", *BIG_TIFF_BEGINNINGS)
# Tags of a TIFF
BITS_PER_SAMPLE = 258
PHOTOMETRIC = 262
SAMPLES_PER_PIXEL = 277
EXTRA_SAMPLES = 338
# Values of the tag PHOTOMETRIC
WHITE_IS_ZERO = 0
GREY = 1
RGB = 2
TWO_BYTES = ("RGB;16", "RGBA;16", "RGBX;16")
"""How Pillow calls colours of 16 bits."""
PILLOW_BANDS = 6
"""Bands of a TIFF at most that Pillow opens."""
ALPHA = ((1,), (2,))
"""Values of the tag EXTRA_SAMPLES of a TIFF whose only additional band is its opacity."""

MOST_MEGAPIXELS = 256
"""Largest image that is decoded, in millions of pixels. Each takes 3 MB of memory, in each worker."""

_pillow_limit = threading.Lock()


def read_samples(file: BinaryIO, decoding: Decoding) -> Samples:
    """The samples of one image file; of several pages or frames the first."""
    if _is_tiff(file):
        return _samples_of_tiff(file, decoding)
    image = _open_image(file)
    if not _is_deep_png(image):
        return samples_of(image)
    if not _keeps_upper_bytes(image):
        raise BadImages("grey with opacity in 16 bits", "save it without opacity")
    return _samples_of_two_bytes(image, file)


def _samples_of_tiff(file: BinaryIO, decoding: Decoding) -> Samples:
    tags = _tags(file)
    if _band_count(tags) > PILLOW_BANDS:
        return _read_tiff(file, decoding, f"Pillow reads up to {PILLOW_BANDS} bands")
    try:
        image: Any = _open_image(file)
    except UnidentifiedImageError:
        if not tags:
            raise
        return _read_tiff(file, decoding, "Pillow reads no TIFF of this kind")
    has_bands = _band_count(image.tag_v2) > 1
    is_deep = has_bands and _bits(image.tag_v2) > 8
    if has_bands and decoding.bands is not None:
        return _read_tiff(file, decoding, "Pillow reads the first three bands")
    if is_deep and not _keeps_upper_bytes(image):
        return _read_tiff(file, decoding, "Pillow keeps 8 bits of each")
    samples = _samples_of_two_bytes(image, file) if is_deep else samples_of(image)
    values = samples.values  # more than 8 bits; of 8 bits Pillow makes 0 black
    if values is not None:
        values = _with_black_at_zero(values, image.tag_v2)
    return replace(samples, values=values, bands=_unused_bands(image.tag_v2), has_bands=has_bands)


def samples_of(image: Image.Image) -> Samples:
    """The samples of an image that Pillow opened."""
    has_more_pages = _has_more_pages(image)
    if image.mode == "F" or image.mode.startswith("I"):
        return Samples(values=np.asarray(image), has_more_pages=has_more_pages)
    return Samples(image, has_more_pages=has_more_pages)


def _has_more_pages(image: Image.Image) -> bool:
    """Whether the file of an image has pages or frames after the first."""
    return bool(getattr(image, "is_animated", False))


def _open_image(file: BinaryIO) -> ImageFile.ImageFile:
    """Open one image, whose pixels are not decoded yet.

    Raises:
        UserError: more pixels than the limit, which Pillow has at 179 million
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(file, formats=FORMATS)
        except Image.DecompressionBombError:
            image = _reopened(file)
    _require_size(*image.size)
    return image


def _require_size(width: int, height: int) -> None:
    megapixels = width * height / 1e6
    if megapixels > MOST_MEGAPIXELS:
        raise BadImages(
            f"{width} x {height} pixels are {megapixels:,.0f} megapixels, above the limit of {MOST_MEGAPIXELS}",
            "shrink the image",
        )


def _is_tiff(file: BinaryIO) -> bool:
    file.seek(0)
    is_tiff = file.read(4) in TIFF_BEGINNINGS
    file.seek(0)
    return is_tiff


def _band_count(tags: Mapping[int, Any]) -> int:
    return int(tags.get(SAMPLES_PER_PIXEL, 1))


def _with_black_at_zero(values: Values, tags: Mapping[int, Any]) -> Values:
    """The values of a TIFF; integers are inverted where its tags say that 0 is white."""
    if tags.get(PHOTOMETRIC) != WHITE_IS_ZERO or values.dtype.kind != "u":
        return values
    inverted: Values = values.dtype.type(2 ** _bits(tags) - 1) - values
    return inverted


def _bits(tags: Mapping[int, Any]) -> int:
    """Bits of a sample, of bands with different numbers of bits the most."""
    return int(max(tags.get(BITS_PER_SAMPLE, (1,))))


def _unused_bands(tags: Mapping[int, Any]) -> int:
    """The number of bands of a TIFF that has more than colours and opacity; 0 for every other one."""
    count = _band_count(tags)
    colours = {GREY: 1, RGB: 3}.get(int(tags.get(PHOTOMETRIC, -1)), count)
    is_opacity = count == colours + 1 and tuple(tags.get(EXTRA_SAMPLES, ())) in ALPHA
    if count <= colours or is_opacity:
        return 0
    return count


def _is_deep_png(image: ImageFile.ImageFile) -> bool:
    """Whether an image is a PNG with several channels of 16 bits, of which Pillow keeps only the upper 8."""
    if image.format != "PNG" or image.mode.startswith("I"):
        return False
    return any(";16" in _raw_mode(tile) for tile in image.tile)


def _keeps_upper_bytes(image: ImageFile.ImageFile) -> bool:
    return all(_raw_mode(tile).startswith(TWO_BYTES) for tile in image.tile)


def _raw_mode(tile: Any) -> str:
    """How the bytes of a tile of an image file are arranged."""
    arguments = tile[3]
    return str(arguments if isinstance(arguments, str) else arguments[0])


def _samples_of_two_bytes(image: ImageFile.ImageFile, file: BinaryIO) -> Samples:
    """Samples (H, W, 3) of 16 bits, of an image whose upper bytes Pillow keeps; opened again in the other order of
    bytes it keeps the lower ones."""
    reopened = _reopened(file)
    reopened.tile = [_with_arguments(tile, _with_swapped_bytes(tile[3])) for tile in reopened.tile]
    upper: Values = np.asarray(image)[..., :3].astype(np.uint16)
    lower: Values = np.asarray(reopened)[..., :3]
    return Samples(values=256 * upper + lower, has_more_pages=_has_more_pages(image))


def _with_arguments(tile: Any, arguments: Any) -> Any:
    """A tile whose bytes are arranged in another way; from Pillow 11 on it is a named tuple."""
    if hasattr(tile, "_replace"):
        return tile._replace(args=arguments)
    return (*tile[:3], arguments)


def _with_swapped_bytes(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return (_with_swapped_bytes(arguments[0]), *arguments[1:])
    order = arguments[-1]
    if order == "N":
        order = "L" if sys.byteorder == "little" else "B"
    swapped = {"L": "B", "B": "L"}
    return arguments[:-1] + swapped.get(order, "L")


def _reopened(file: BinaryIO) -> ImageFile.ImageFile:
    file.seek(0)
    with _pillow_limit, patch.object(Image, "MAX_IMAGE_PIXELS", None):
        return Image.open(file, formats=FORMATS)


def _read_tiff(file: BinaryIO, decoding: Decoding, reason: str) -> Samples:
    """The first page of a TIFF by tifffile, which has every number of bands and bits."""
    tags = _tags(file)
    purpose = f"a TIFF of {_band_count(tags)} bands of {_bits(tags)} bits ({reason})"
    require(purpose, "tifffile", extra="tiff", alternative=", or save three bands with 8 bits each")
    import tifffile

    file.seek(0)
    with tifffile.TiffFile(file) as tiff:
        page: Any = tiff.pages[0]
        _require_size(page.imagewidth, page.imagelength)
        planes = _bands_last(page)
        num_opacity = sum(int(kind) in (1, 2) for kind in page.extrasamples)
        has_more_pages = bool(tiff.pages.is_multipage)
    count = planes.shape[-1]
    chosen = decoding.bands or usual_bands(count)
    if max(chosen) > count:
        raise BadSetting(
            f"{named('bands')} names band {max(chosen)}, and this TIFF has {count} bands",
            f"choose from 1 to {count}",
            setting="bands",
        )
    unused = 0
    if count - num_opacity > len(chosen):
        unused = count
    values = planes[..., [band - 1 for band in chosen]]
    if len(chosen) == 1:
        values = values[..., 0]
    values = _with_black_at_zero(values, tags)
    samples = Samples(values=values)
    if values.dtype == np.uint8:
        samples = Samples(Image.fromarray(values))
    return replace(samples, bands=unused, has_bands=count > 1, has_more_pages=has_more_pages)


def _bands_last(page: Any) -> Values:
    """The pixels (H, W, bands) of a page of a TIFF."""
    planes: Values = page.asarray()
    if planes.ndim == 2:
        return planes[..., None]
    if page.axes.startswith("S"):
        return np.moveaxis(planes, 0, -1)
    return planes


def _tags(file: BinaryIO) -> Mapping[int, Any]:
    """The tags of a TIFF's first page, none of a damaged one; the file is at its beginning afterwards."""
    tags: Mapping[int, Any] = {}
    with suppress(Exception):
        file.seek(0)
        header = file.read(8)
        if header.startswith(BIG_TIFF_BEGINNINGS):
            header += file.read(8)
        directory = ImageFileDirectory_v2(header)
        file.seek(directory.next)
        directory.load(file)
        tags = dict(directory)
    file.seek(0)
    return tags
