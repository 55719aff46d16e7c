"""Files of every depth and number of bands become the expected bytes, by one range for a data set that is stated."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.support.refusals import refused
from tllib_ancon.data import image_files
from tllib_ancon.data.image_files import read_samples
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.pixels import Decoding, PixelValues, Samples, usual_bands

SHAPE = (3, 2)
"""Rows and columns, so that no test passes with them exchanged."""


def deep(*channels):
    """16 bits, in which upper and lower bytes differ everywhere."""
    count = int(np.prod((*SHAPE, *channels)))
    numbers = np.arange(count)
    values = 1000 + 257 * numbers + numbers // 2
    return values.astype(np.uint16).reshape(*SHAPE, *channels)


def png16(pixels):
    """A PNG of 16 bits a channel, which Pillow does not write in colour."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    colour_type = {2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        checksum = zlib.crc32(kind + body)
        content += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)
    return content


def tiff(pixels, **options):
    tifffile = pytest.importorskip("tifffile")
    content = io.BytesIO()
    photometric = "rgb" if pixels.shape[-1] in (3, 4) else "minisblack"
    tifffile.imwrite(content, pixels, **{"photometric": photometric, "planarconfig": "contig", **options})
    return content.getvalue()


def saved(image, kind, **options):
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def read(content, **decoding):
    return read_samples(io.BytesIO(content), Decoding(**decoding))


@pytest.mark.parametrize("channels", [3, 4])
def test_a_png_of_16_bits_in_colour_keeps_both_bytes(channels):
    pixels = deep(channels)
    samples = read(png16(pixels))
    assert samples.values is not None
    assert np.array_equal(samples.values, pixels[..., :3])
    assert (samples.bands, samples.has_more_pages) == (0, False)


def test_a_png_of_grey_with_opacity_in_16_bits_is_refused():
    with refused("grey with opacity in 16 bits; save it without opacity"):
        read(png16(deep(2)))


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize(
    ("channels", "options", "bands"),
    [
        ((3,), {}, 0),
        ((3,), {"compression": "zlib"}, 0),
        ((4,), {"extrasamples": ["unassalpha"]}, 0),
        ((4,), {"extrasamples": ["unspecified"]}, 4),
        ((5,), {}, 5),
        ((13,), {}, 13),
        ((2,), {}, 2),
    ],
)
def test_a_tiff_of_16_bits_has_its_first_bands(byteorder, channels, options, bands):
    pixels = deep(*channels)
    samples = read(tiff(pixels, byteorder=byteorder, **options))
    expected = pixels[..., :3] if channels[0] >= 3 else pixels[..., 0]
    assert samples.values is not None
    assert np.array_equal(samples.values, expected)
    assert samples.bands == bands


def test_a_large_tiff_and_one_of_several_pages_are_read():
    pixels = deep(13)
    samples = read(tiff(pixels, bigtiff=True))
    assert samples.values is not None
    assert np.array_equal(samples.values, pixels[..., :3])
    assert read(tiff(np.stack([pixels, pixels]))).has_more_pages


@pytest.mark.parametrize("options", [{}, {"bigtiff": True}, {"compression": "zlib"}])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_grey_of_a_tiff_whose_zero_is_white_is_inverted(kind, options):
    pixels = (np.arange(6) * 9).reshape(SHAPE).astype(kind)
    samples = read(tiff(np.iinfo(kind).max - pixels, photometric="miniswhite", **options))
    stored = np.asarray(samples.image) if samples.values is None else samples.values
    assert np.array_equal(stored, pixels)


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_bands_of_a_tiff_are_chosen_and_counted_from_one(planar):
    pixels = (np.arange(30, dtype=np.uint8) * 3).reshape(3, 2, 5)
    stored = pixels if planar == "contig" else np.moveaxis(pixels, -1, 0)
    content = tiff(stored, photometric="minisblack", planarconfig=planar)
    chosen = read(content, bands=(5, 1, 2))
    assert np.array_equal(np.asarray(chosen.image), pixels[..., [4, 0, 1]])
    assert chosen.bands == 5
    grey = read(content, bands=(4,))
    assert np.array_equal(np.asarray(grey.image), pixels[..., 3])
    with refused("`bands` names band 6, and this TIFF has 5 bands; choose from 1 to 5"):
        read(content, bands=(6,))


def test_the_size_of_an_image_has_a_limit(monkeypatch):
    monkeypatch.setattr(image_files, "MOST_MEGAPIXELS", 3)
    with refused("2000 x 1501 pixels are 3 megapixels, above the limit of 3; shrink the image"):
        read(saved(Image.new("1", (2000, 1501)), "PNG"))
    assert read(saved(Image.new("1", (2000, 1500)), "PNG")).image is not None
    with refused("2001 x 1500 pixels are 3 megapixels, above the limit of 3; shrink the image"):
        read(tiff(np.zeros((1500, 2001, 7), np.uint8)))


def test_all_bands_in_use_are_not_spoken_of():
    pixels = (np.arange(18, dtype=np.uint8) * 3).reshape(3, 2, 3)
    samples = read(tiff(pixels), bands=(3, 2, 1))
    assert np.array_equal(np.asarray(samples.image), pixels[..., ::-1])
    assert samples.bands == 0
    for count in (1, 2):
        assert usual_bands(count) == (1,)
    for count in (3, 13):
        assert usual_bands(count) == (1, 2, 3)


@pytest.mark.parametrize(("mode", "value"), [("I;16", 40_000), ("I", 70_000), ("F", 0.25)])
def test_grey_of_more_than_8_bits_keeps_its_values(mode, value):
    samples = read(saved(Image.new(mode, (2, 3), value), "TIFF"))
    assert samples.values is not None
    assert samples.values.shape == SHAPE
    assert (samples.values == value).all()


# The range of a data set


@pytest.mark.parametrize(
    ("most", "is_float", "white"),
    [
        (1, True, 1),
        (1, False, 255),
        (1.01, True, 255),
        (255, False, 255),
        (256, False, 1023),
        (1024, False, 4095),
        (4095, False, 4095),
        (4096, False, 16_383),
        (16_384, False, 65_535),
        (65_536, False, 1_048_575),
        (1_048_576, False, 16_777_215),
        (16_777_216, False, 4_294_967_295),
        (1e20, True, 1e20),
    ],
)
def test_the_smallest_depth_that_holds_every_value_is_white(most, is_float, white):
    assert PixelValues(images=1, deep=1, is_float=is_float, most=most).pixel_range == (0.0, white)


def test_a_range_that_no_rule_decides():
    assert PixelValues(images=3).pixel_range is None
    message = (
        "pixel values range from -2 to 3.5, and negative ones have no usual range; pass the values that become black "
        "and white as `pixel_range`"
    )
    with refused(message):
        _ = PixelValues(images=1, deep=1, least=-2, most=3.5).pixel_range


def test_what_a_sample_of_the_images_holds(tmp_path):
    second_frame = Image.new("L", (2, 3), 9)
    contents = {
        "0.png": saved(Image.new("L", (2, 3), 9), "PNG"),
        "1.tif": tiff(np.full((3, 2), 7, np.uint16)),
        "2.tif": tiff(np.full((3, 2, 5), 0.5, np.float32)),
        "3.gif": saved(Image.new("L", (2, 3)), "GIF", save_all=True, append_images=[second_frame]),
        "4.tif": tiff(np.full((3, 2), np.nan, np.float32)),
        "5.png": b"no image",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    values = as_domain(tmp_path).pixel_values()
    assert values == PixelValues(5, 2, True, 0.5, 7.0, 5, 1, banded=1)
    assert as_domain(tmp_path).subset([0]).pixel_values() == PixelValues(images=1)


def test_deep_values_are_scaled_by_the_range_and_clipped():
    values = np.array([[-5, 100], [150, 200], [299, 1000]], dtype=np.int32)
    pixels = np.asarray(Samples(values=values).to_rgb((100.0, 300.0)))
    assert pixels[..., 0].tolist() == [[0, 0], [63, 127], [253, 255]]
    assert (pixels == pixels[..., :1]).all()
    every_byte = np.arange(256, dtype=np.int32)[None]
    of_every_byte = Samples(values=every_byte).to_rgb((0.0, 255.0))
    assert np.array_equal(np.asarray(of_every_byte)[..., 0], every_byte)
    needs_range = (
        "it has more than 8 bits a channel, and the other images have 8; pass the values that become black and white "
        "as `pixel_range`"
    )
    with refused(needs_range):
        Samples(values=values).to_rgb(None)
    with pytest.raises(
        ValueError, match=r"^it holds NaN or infinity; fill these pixels in, or save it with 8 bits a channel$"
    ):
        Samples(values=np.array([[np.inf]])).to_rgb((0.0, 1.0))
