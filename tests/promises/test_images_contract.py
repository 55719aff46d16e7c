"""The contract of images: what reaches a model from each kind, what is one line, and what ``loader`` does instead."""

import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis.extra.numpy import arrays
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import tllib_ancon
from tests.support import levels
from tests.support.places import ROOT, blocks_of
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main
from tllib_ancon.data.image_files import jpeg

SIDE = 8
UNSCALED = {**levels.UNSCALED, "quiet": True}
ADAPTING = {"epochs": 1, "threads": 1, "method": "adabn"}
INPUTS = ROOT / "docs" / "inputs.md"


class Recorder(nn.Module):
    """A model whose logits are 0 and the mean of an input; it remembers what it got."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1, affine=False)
        self.head = nn.Linear(1, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.weight.data[1] = 1.0
        self.seen = []

    def forward(self, images):
        self.seen.append(images.detach().clone())
        return self.head(images.flatten(1).mean(1, keepdim=True))


def received(images, **how):
    """The inputs that the model gets, the last batches first seen last."""
    model = Recorder().eval()
    predictions = tllib_ancon.predict(model, images, **how)
    count = len(predictions.labels)
    return torch.cat(model.seen)[-count:]


def pixels(count=4, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def saved(folder, images, ending="png"):
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number}.{ending}")
    return folder


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(images=arrays(np.uint8, (3, SIDE, SIDE, 3)))
def test_bytes_reach_the_model_as_the_same_tensors_from_every_kind(images, tmp_path):
    expected = torch.from_numpy(images).movedim(-1, 1) / 255
    folder = saved(tmp_path, images)
    pictures = [Image.fromarray(image) for image in images]
    planes = torch.from_numpy(images).movedim(-1, 1)
    kinds = [images, planes, pictures, [*images], [*planes], [(picture, 1) for picture in pictures]]
    kinds += [TensorDataset(planes, torch.arange(3)), folder, [folder / f"{number}.png" for number in range(3)]]
    for kind in kinds:
        torch.testing.assert_close(received(kind, **UNSCALED), expected)


@pytest.mark.parametrize("grey", [pixels()[..., 0], torch.from_numpy(pixels()[..., 0])[:, None]])
def test_grey_bytes_have_three_equal_channels(grey):
    expected = torch.as_tensor(grey).reshape(4, 1, SIDE, SIDE).expand(-1, 3, -1, -1) / 255
    torch.testing.assert_close(received(grey, **UNSCALED), expected)


@pytest.mark.parametrize("shape", [(5,), (2, 7), (3, 4, 4), (4, 4, 3), (6, 5, 5)], ids=str)
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_floats_reach_the_model_unchanged(kind, shape):
    rows = np.random.default_rng(0).random((3, *shape)).astype(kind)
    expected = torch.from_numpy(rows).float()
    for images in (rows, torch.from_numpy(rows), [*rows], [*torch.from_numpy(rows)], TensorDataset(expected)):
        assert torch.equal(received(images, quiet=True, workers=0), expected)


def write_pages(path):
    page = Image.new("RGB", (SIDE, SIDE))
    page.save(path, save_all=True, append_images=[page])


def write_bands(count, kind, path):
    import tifffile

    tifffile.imwrite(path, np.zeros((SIDE, SIDE, count), kind), photometric="minisblack")


BEYOND = {
    "a.png": lambda path: Image.fromarray(np.zeros((SIDE, SIDE), np.uint16)).save(path),
    "colours.tif": partial(write_bands, 3, np.uint16),
    "5 bands.tif": partial(write_bands, 5, np.uint8),
    "pages.tif": write_pages,
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_file_beyond_rgb_of_8_bits_is_one_line_that_names_it_and_the_loader(name, tmp_path):
    BEYOND[name](tmp_path / name)
    with one_line(f"{re.escape(name)}.*`loader`"):
        received(tmp_path, **UNSCALED)
    read = received(tmp_path, loader=lambda path: Image.new("RGB", (SIDE, SIDE), (255, 0, 0)), **UNSCALED)
    assert read.mean((0, 2, 3)).tolist() == [1, 0, 0]


def test_of_an_animation_the_first_frame_is_read(tmp_path):
    first = Image.new("RGB", (SIDE, SIDE), (255, 255, 255))
    first.save(tmp_path / "a.gif", save_all=True, append_images=[Image.new("RGB", (SIDE, SIDE))])
    assert received(tmp_path, **UNSCALED).min() == 1


@pytest.mark.parametrize(
    "images",
    [
        *({"images": pixels(), "labels": [0, 1, 0, 1]}, (pixels(), [0, 1, 0, 1]), [{"image": pixels()[0]}]),
        *(pixels().astype(np.uint16), pixels().astype(np.int64), np.array(1.0), pixels()[0]),
        *([3, 4], ["none.png"], [(), ()], np.full((2, 3, 4), np.nan)),
        [Image.fromarray(np.full((SIDE, SIDE), 4095, np.uint16))],
    ],
)
def test_what_breaks_the_contract_is_one_line(images):
    with one_line("; |expected"):
        received(images, **UNSCALED)


def test_a_file_of_another_kind_is_one_line_that_says_what_is_read(tmp_path):
    (tmp_path / "a.npz").touch()
    with one_line(r"a\.npz is no JPEG, .*`loader`.*open a file of arrays .* pass its array of images"):
        received(tmp_path / "a.npz", **UNSCALED)
    with one_line(r"b\.npz does not exist; pass a folder of images"):
        received(tmp_path / "b.npz", **UNSCALED)


# The hook.


def as_picture(path):
    return Image.open(path)


def as_bytes(path):
    return torch.from_numpy(np.array(Image.open(path))).movedim(-1, 0)


def as_floats(path):
    return as_bytes(path).double() - 100


def inverted(path):
    return 255 - as_bytes(path)


def test_images_of_a_loader_are_transformed_and_its_floats_are_not(tmp_path):
    saved(tmp_path, pixels())
    expected = received(tmp_path, **UNSCALED)
    for loader in (as_picture, as_bytes):
        assert torch.equal(received(tmp_path, loader=loader, **UNSCALED), expected)
    unchanged = received(tmp_path, loader=as_floats, workers=0, quiet=True)
    torch.testing.assert_close(unchanged, 255 * expected - 100)
    with one_line("`norm_mean` has no effect on tensors"):
        received(tmp_path, loader=as_floats, **UNSCALED)


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (None, "None"),
        (np.zeros((3, 4), np.uint16), r"ndarray \(3, 4\) uint16"),
        (torch.zeros(5, 4, 4, dtype=torch.uint8), r"Tensor \(5, 4, 4\) uint8"),
    ],
)
def test_a_loader_that_returns_no_image_is_named_with_what_it_got_and_returned(returned, shown, tmp_path):
    saved(tmp_path, pixels(1))
    with one_line(rf"`loader` .*lambda>\(.*0\.png\) returns {shown}"):
        received(tmp_path, loader=lambda path: returned, **UNSCALED)


def mixed(path):
    return as_bytes(path) if path.endswith("1.png") else torch.zeros(3, 2, 2)


def broken(path):
    raise KeyError("Modality")


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (broken, r"`loader` .*broken\(.*0\.png\) raises KeyError \('Modality'\)"),
        (mixed, r"`loader` .*1\.png\) returns Image, and before another kind"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_raises_or_returns_two_kinds_is_named_with_what_it_got(loader, message, workers, tmp_path):
    saved(tmp_path, pixels(2))
    with one_line(message):
        received(tmp_path, loader=loader, workers=workers)


def test_a_loader_reads_files_alone():
    with one_line("`loader` reads files"):
        received(pixels(), loader=as_bytes, **UNSCALED)


def test_the_cache_knows_which_loader_read_a_file(tmp_path):
    saved(tmp_path, pixels())
    how = {**UNSCALED, "cache": str(tmp_path / "cache")}
    plain = received(tmp_path, **how)
    assert torch.equal(received(tmp_path, loader=as_bytes, **how), plain)
    torch.testing.assert_close(received(tmp_path, loader=inverted, **how), 1 - plain)
    with one_line("`cache` needs to know `loader` again"):
        received(tmp_path, loader=lambda path: as_bytes(path), **how)


def test_every_call_takes_a_loader(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    saved(folder, pixels(20))
    model = Recorder().eval()
    result = tllib_ancon.adapt(model, folder, loader=inverted, log=tmp_path / "run", **ADAPTING, **UNSCALED)
    assert tllib_ancon.evaluate(model, folder, loader=inverted, **UNSCALED).scores["images"] == 20
    tllib_ancon.check(model, folder, loader=inverted, **UNSCALED)
    expected = tllib_ancon.predict(result.model, folder, loader=inverted, **UNSCALED).probabilities
    with one_line(
        "^the model's run read its images by the function .*:inverted, which no run calls by itself; pass it as "
        "`loader`$"
    ):
        tllib_ancon.predict(Recorder().eval(), folder, checkpoint=str(tmp_path / "run"), workers=0, quiet=True)
    again = tllib_ancon.predict(
        Recorder().eval(), folder, checkpoint=str(tmp_path / "run"), loader=inverted, workers=0, quiet=True
    )
    np.testing.assert_allclose(again.probabilities, expected, atol=1e-6)


def test_people_see_what_a_loader_returns(tmp_path):
    saved(tmp_path, pixels())
    other = Recorder().eval()
    other.head.weight.data[1] = -1.0
    other.head.bias.data[0] = -0.1
    session = tllib_ancon.certify(Recorder().eval(), other, tmp_path, loader=as_floats, workers=0, quiet=True)
    assert torch.equal(session.image(1), as_floats(tmp_path / "1.png").float())
    assert jpeg(session.image(1)).startswith(b"\xff\xd8")


def test_the_command_imports_the_loader_that_the_user_names_and_no_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "photos").mkdir()
    saved(tmp_path / "photos", pixels(12))
    lines = ["from pathlib import Path", "from PIL import Image", "Path('imported').touch()"]
    lines += ["def read(path):", "    return Image.open(path)"]
    Path("readers_of_mine.py").write_text("\n".join(lines))
    images = ["photos", "--image-size", "8", "-j", "0", "--quiet"]
    model = "tests.promises.test_images_contract:a_classifier"
    torch.save(a_classifier().state_dict(), "model.pth")
    words = [*images, "--checkpoint", "model.pth", "--model", model, "--method", "adabn", "--log", "run"]
    words += ["--norm-mean", "0", "0", "0", "--norm-std", "1", "1", "1"]
    assert main(["adapt", *words, "--loader", "readers_of_mine:read"]) == 0
    assert Path("imported").exists()
    Path("imported").unlink()
    del sys.modules["readers_of_mine"]
    predict = ["predict", "photos", "--checkpoint", "run", "--model", model, "-j", "0", "--out", "p.csv", "--quiet"]
    capsys.readouterr()
    assert main(predict) == 2
    assert "readers_of_mine:read" in (shown := capsys.readouterr().err)
    assert "--loader" in shown
    assert not Path("imported").exists()
    assert main([*predict, "--loader", "readers_of_mine:read"]) == 0


def a_classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


# The recipes of the documentation.


def recipe(first_words):
    """The functions of the block of Python in docs/inputs.md that begins with these words."""
    blocks = blocks_of(INPUTS.read_text(), "python")
    block = next(block for block in blocks if block.startswith(first_words))
    names = {}
    exec(block, names)
    return names["read"]


def test_the_recipe_for_16_bits_scales_every_image_by_one_range(tmp_path):
    for value in (0, 1000, 4095):
        Image.fromarray(np.full((SIDE, SIDE), value, np.uint16)).save(tmp_path / f"{value:04}.png")
    read = received(tmp_path, loader=recipe("import numpy as np\nfrom PIL"), **UNSCALED)
    assert read.mean((1, 2, 3)).tolist() == pytest.approx([0, 1000 / 4095, 1], abs=1 / 255)


def test_the_recipe_for_tifffile_chooses_bands(tmp_path):
    import tifffile

    bands = np.zeros((SIDE, SIDE, 13), np.uint16) + np.arange(13, dtype=np.uint16) * 500
    tifffile.imwrite(tmp_path / "a.tif", bands, photometric="minisblack")
    read = received(tmp_path, loader=recipe("import tifffile"), workers=0, quiet=True)
    assert read.mean((0, 2, 3)).tolist() == pytest.approx([0.15, 0.1, 0.05])


def test_the_recipe_for_pydicom_windows_a_scan(tmp_path):
    pytest.importorskip("pydicom")
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan = FileDataset("a.png", {}, file_meta=meta, preamble=b"\0" * 128)
    scan.SOPClassUID = meta.MediaStorageSOPClassUID
    scan.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    values = np.linspace(0, 2000, SIDE * SIDE).reshape(SIDE, SIDE).astype(np.uint16)
    sizes = {"Rows": SIDE, "Columns": SIDE, "SamplesPerPixel": 1, "PixelRepresentation": 0, "BitsAllocated": 16}
    coding = {"BitsStored": 12, "HighBit": 11, "PhotometricInterpretation": "MONOCHROME2"}
    for name, value in {**sizes, **coding, "RescaleSlope": 1, "RescaleIntercept": -1024}.items():
        setattr(scan, name, value)
    scan.PixelData = values.tobytes()
    file = tmp_path / "a.dcm"
    scan.save_as(file)
    read = received([file], loader=recipe("import numpy as np\nimport pydicom"), **UNSCALED)
    expected = np.clip((values.astype(float) - 1024 + 160) / 400, 0, 1)
    np.testing.assert_allclose(read[0, 0], expected, atol=1 / 255)
