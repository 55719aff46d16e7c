"""Images of more than 8 bits, of more than three bands, and very large ones are read as people mean them."""

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageOps
from torch import nn

import tllib_ancon
from tests.data.test_pixels import png16, tiff
from tests.json_files import read_json
from tests.networks import Net
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main
from tllib_ancon.data.open import as_domain

HOW = {"norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3, "image_size": 8, "workers": 0}
MEANS = (0.1, 0.4, 0.9)
"""Brightness of three grey images, of black 0 and white 1."""


class Brightness(nn.Module):
    """Two logits whose probability tells the mean of the first channel."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[0.0], [1.0]]))
            self.head.bias.zero_()

    def forward(self, images):
        return self.head(images[:, :1].mean((2, 3)))


def brightness(images, **settings):
    probabilities = tllib_ancon.predict(Brightness(), images, **HOW, **settings).probabilities
    return np.log(probabilities[:, 1] / probabilities[:, 0]).tolist()


def write_png16(path, pixels):
    path.write_bytes(png16(pixels))


def write_tiff(path, pixels):
    path.write_bytes(tiff(pixels))


def write_grey(path, pixels):
    Image.fromarray(pixels).save(path)


def flat(value, dtype, *channels):
    return np.full((8, 8, *channels), value, dtype)


def folder_of(root, ending, write, images):
    for number, pixels in enumerate(images):
        write(root / f"{number}{ending}", pixels)
    return root


@pytest.mark.parametrize(
    ("ending", "write", "dtype", "channels", "white"),
    [
        (".png", write_grey, "uint16", (), 1023),
        (".tif", write_grey, "float32", (), 1),
        (".png", write_png16, "uint16", (3,), 4095),
        (".tif", write_tiff, "float32", (13,), 1),
    ],
)
def test_the_range_belongs_to_the_data_set_and_is_stated(tmp_path, capfd, ending, write, dtype, channels, white):
    images = [flat(mean * white, dtype, *channels) for mean in (*MEANS, 0.98)]
    folder = folder_of(tmp_path, ending, write, images)
    assert brightness(folder, quiet=False)[:3] == pytest.approx(MEANS, abs=0.01)
    shown = capfd.readouterr().err
    assert f"0 becomes black and {white} white; `pixel_range` changes it" in shown
    assert ("bands, of which 1, 2, 3 are used" in shown) is (channels == (13,))
    alone = brightness(folder / f"0{ending}", pixel_range=(0, white))
    assert alone == pytest.approx(MEANS[:1], abs=0.01)


def test_a_setting_gives_the_range_and_what_lies_outside_is_clipped(tmp_path):
    scan = [flat(value, "int32") for value in (-2000, -1000, 500, 3000)]
    folder = folder_of(tmp_path, ".tif", write_grey, scan)
    with one_line(r"pixel values range from -2000 to 3000, .*as `pixel_range`"):
        brightness(folder)
    assert brightness(folder, pixel_range=(-1000, 1000)) == pytest.approx([0, 0, 0.75, 1], abs=0.01)
    with one_line("MIN < MAX, got 5 5"):
        brightness(folder, pixel_range=(5, 5))


def test_eight_bits_are_not_spoken_of(tmp_path, capfd):
    folder = folder_of(tmp_path, ".png", write_grey, [flat(51, "uint8"), flat(51, "uint8", 4)])
    assert brightness(folder, quiet=False) == pytest.approx([0.2, 0.2], abs=1e-3)
    assert "becomes black" not in capfd.readouterr().err
    with one_line("`pixel_range` has no effect on images with 8 bits"):
        brightness(folder, pixel_range=(0, 100))


def test_arrays_and_images_in_memory_have_one_range_too():
    deep = [flat(mean * 4095, "uint16") for mean in (*MEANS, 0.98)]
    channels = [torch.from_numpy(pixels)[None] for pixels in deep]
    tensors = torch.stack([channel.expand(3, -1, -1) for channel in channels])
    grey = np.stack(deep)
    in_memory = [Image.fromarray(pixels) for pixels in deep]
    for images in (grey, grey[..., None], tensors, in_memory):
        assert brightness(images)[:3] == pytest.approx(MEANS, abs=0.01)


def test_a_run_records_the_range_and_later_stages_take_it(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    means = np.linspace(0.02, 0.98, 20)
    folder_of(folder, ".png", write_grey, [flat(mean * 4095, "uint16") for mean in means])
    model = Net(2).eval()
    result = tllib_ancon.adapt(model, folder, log=tmp_path / "run", method="ancon", epochs=1, quiet=True, **HOW)
    assert read_json(tmp_path / "run/config.json")["pixel_range"] == [0, 4095]
    dark = folder_of(tmp_path, ".png", write_grey, [flat(200, "uint16")]) / "0.png"
    of_the_run = tllib_ancon.predict(model, dark, checkpoint=str(tmp_path / "run")).probabilities
    expected = tllib_ancon.predict(result.model, dark, pixel_range=result.config.pixel_range, **HOW).probabilities
    assert of_the_run == pytest.approx(expected, abs=1e-6)
    alone = tllib_ancon.predict(result.model, dark, **HOW).probabilities
    assert np.abs(alone - expected).max() > 1e-3


def test_bands_are_chosen_by_a_setting(tmp_path):
    bands = [flat(0, "uint8", 5) for _ in range(2)]
    for image, mean in zip(bands, (0.2, 0.6), strict=True):
        image[..., 3] = 255 * mean
    folder = folder_of(tmp_path, ".tif", write_tiff, bands)
    assert brightness(folder, bands=(4, 3, 2)) == pytest.approx([0.2, 0.6], abs=0.01)
    assert brightness(folder, bands=(4,)) == pytest.approx([0.2, 0.6], abs=0.01)
    assert brightness(folder) == pytest.approx([0, 0], abs=0.01)


def test_without_the_reader_of_tiffs_a_line_names_bands_and_what_to_install(tmp_path, monkeypatch):
    folder_of(tmp_path, ".tif", write_tiff, [flat(1, "uint16", 13)])
    monkeypatch.setattr("tllib_ancon.runtime.extras.find_spec", lambda name: None)
    message = r"0\.tif: .*TIFF of 13 bands of 16 bits .*needs tifffile: pip install 'tllib-ancon\[tiff\]'"
    with one_line(message):
        as_domain(tmp_path).image(0)


def test_an_image_beyond_what_pillow_opens_is_read(tmp_path):
    Image.new("1", (16_384, 12_288)).save(tmp_path / "a.png")
    assert as_domain(tmp_path / "a.png").image(0).size == (16_384, 12_288)


def test_the_command_line_has_the_flags(tmp_path, monkeypatch, capfd):
    folder_of(tmp_path, ".tif", write_grey, [flat(value, "int32") for value in (-1000, 3000)])
    torch.save(Brightness().state_dict(), tmp_path / "net.pth")
    monkeypatch.chdir(tmp_path)
    flags = ["--norm-mean", "0", "0", "0", "--norm-std", "1", "1", "1", "--image-size", "8"]
    words = ["predict", str(tmp_path), "--checkpoint", "net.pth", "--model", f"{__name__}:Brightness", *flags]
    assert main(words) == 2
    assert "as --pixel-range" in capfd.readouterr().err
    assert main([*words, "--pixel-range", "-1000", "3000"]) == 0
    assert "-1000 becomes black and 3000 white; " in capfd.readouterr().err


def test_files_of_several_pages_or_frames_say_that_the_first_is_used(tmp_path, capfd):
    first = Image.new("RGB", (8, 8), (25, 25, 25))
    second = Image.new("RGB", (8, 8), (200, 200, 200))
    first.save(tmp_path / "0.tif", save_all=True, append_images=[second, second])
    first.save(tmp_path / "1.tif")
    first.save(tmp_path / "2.gif", save_all=True, append_images=[second])
    assert brightness(tmp_path) == pytest.approx([0.1] * 3, abs=0.01)
    line = "2 of 3 sampled images are in files of several pages or frames, of which the first is used"
    assert line in capfd.readouterr().err
    checked = tllib_ancon.check(Brightness(), tmp_path, **HOW)
    assert line in checked.images.text
    assert checked.images.mark == "?"
    brightness(tmp_path, quiet=True)
    assert line not in capfd.readouterr().err


def test_python_states_what_is_assumed_of_images(tmp_path, capfd):
    folder_of(tmp_path, ".png", write_grey, [flat(level, "uint16") for level in (0, 1000, 4000)])
    (tmp_path / "notes.txt").write_text("")
    tllib_ancon.evaluate(Brightness(), tmp_path, **HOW)
    said = capfd.readouterr().err
    assert "pixels are integers from 0 to 4000 in 3 of 3 sampled images: 0 becomes black and 4095 white" in said
    assert "1 file ignored (.txt)" in said


def test_an_orientation_that_is_not_applied_is_told_and_the_advice_leads_on(tmp_path, capfd):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for number in range(3):
        image = Image.new("RGB", (8, 6))
        image.save(tmp_path / f"{number}.jpg", exif=exif if number else Image.Exif())
    for call in (tllib_ancon.adapt, tllib_ancon.predict):
        call(Brightness(), tmp_path, **HOW, **({"epochs": 1} if call is tllib_ancon.adapt else {}))
        assert "2 of 3 sampled images have an EXIF orientation, which is not applied" in capfd.readouterr().err
    for path in tmp_path.iterdir():
        ImageOps.exif_transpose(Image.open(path)).save(path)
    tllib_ancon.predict(Brightness(), tmp_path, **HOW)
    assert "EXIF" not in capfd.readouterr().err


@pytest.mark.parametrize("call", [tllib_ancon.adapt, tllib_ancon.predict])
def test_transparent_pixels_are_told_and_the_advice_leads_on(call, tmp_path, capfd):
    settings = {**HOW, **({"epochs": 1} if call is tllib_ancon.adapt else {})}
    for number, opacity in enumerate((0, 200, 255)):
        image = Image.new("RGBA", (8, 6), (90, 90, 90, opacity))
        image.save(tmp_path / f"{number}.png")
    call(Brightness(), tmp_path, **settings)
    assert "2 of 3 sampled images have transparent pixels, whose hidden colours are used" in capfd.readouterr().err
    for path in tmp_path.iterdir():
        image = Image.open(path)
        Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB").save(path)
    call(Brightness(), tmp_path, **settings)
    assert "transparent" not in capfd.readouterr().err


@pytest.mark.parametrize(("ending", "bands"), [(".jpg", [3]), (".tif", [])])
def test_bands_without_effect_are_one_line(ending, bands, tmp_path):
    folder = folder_of(tmp_path, ending, write_grey, [flat(9, "uint8", *bands)])
    for images in (folder, np.zeros((2, 8, 8, 3), np.uint8)):
        with one_line("`bands` has no effect on images other than TIFFs of several bands; leave it out"):
            brightness(images, bands=(1, 1, 1))


def test_a_range_of_bytes_in_memory_is_one_line():
    with one_line("`pixel_range` has no effect on images with 8 bits a channel; leave it out"):
        brightness(np.zeros((2, 8, 8, 3), np.uint8), pixel_range=(0, 100))
