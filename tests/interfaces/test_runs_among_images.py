"""Run directories and lists beside images."""

import pytest
from PIL import Image

import tllib_ancon
from tests.support.levels import levels, write
from tests.support.refusals import one_line

HOW = {"norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3, "image_size": 8, "workers": 0}
QUICK = {"epochs": 1, "method": "self-training", "no_hflip": True}


def adapted(model, folder, **settings):
    return tllib_ancon.adapt(model, folder, **{**HOW, **QUICK, **settings})


def lines(capfd):
    return capfd.readouterr().err


@pytest.mark.parametrize("log", [".", "cat"])
@pytest.mark.parametrize("door", [lambda folder: folder, lambda folder: sorted(map(str, folder.glob("*/*.png")))])
def test_a_run_directory_is_no_folder_of_the_images(log, door, tmp_path):
    """A later call would leave its images out, or take the picture of its scores for one."""
    photos = write(tmp_path / "photos", ["cat", "dog", "owl"], 3)
    if log == "." and door(photos) != photos:
        Image.new("RGB", (8, 8)).save(photos / "top.png")
    before = sorted(photos.rglob("*"))
    images = door(photos) if log != "." or door(photos) == photos else [str(photos / "top.png")]
    with one_line('`log=".*"` holds images, .* choose another `log`, such as a new folder'):
        tllib_ancon.adapt(levels(3), images, log=photos / log, **HOW, **QUICK)
    assert sorted(photos.rglob("*")) == before
