"""Run directories and lists beside images."""

from pathlib import Path

import pytest
import timm
import torch
from PIL import Image

import tllib_ancon
from tests.support.levels import levels, write
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main

HOW = {"norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3, "image_size": 8, "workers": 0}
QUICK = {"epochs": 1, "method": "self-training", "no_hflip": True}


def adapted(model, folder, **settings):
    return tllib_ancon.adapt(model, folder, **{**HOW, **QUICK, **settings})


def lines(capfd):
    return capfd.readouterr().err


@pytest.mark.parametrize("folders", [["0", "1"], ["photos"]])
def test_a_run_directory_among_the_images_is_no_part_of_them(folders, tmp_path, capfd):
    write(tmp_path, folders, 2)
    first = adapted(levels(2), tmp_path, log=tmp_path / "runs" / "adapted", quiet=False)
    figures = tmp_path / "runs" / "adapted" / "visualize"
    figures.mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(figures / "epochs.png")  # as the command does
    capfd.readouterr()
    again = adapted(levels(2), tmp_path, log=tmp_path / "runs" / "adapted", quiet=False)
    assert "holds this run already" in lines(capfd)
    assert again.metrics == first.metrics
    predictions = tllib_ancon.predict(first.model, tmp_path, **HOW)
    assert len(predictions.paths) == 2 * len(folders)


@pytest.mark.parametrize("command", ["adapt", "predict", "check"])
def test_paths_that_a_shell_expands_get_a_way_that_works(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "photos", ["a"], 2)
    torch.save(timm.create_model("test_resnet", num_classes=2).state_dict(), "model.pth")
    rest = ["--checkpoint", "model.pth", "-a", "timm/test_resnet", "--image-size", "32"]
    assert main([command, "photos/a/0.png", "photos/a/1.png", *rest]) == 2
    said = lines(capfd)
    assert f"tllib-ancon {command} takes one path, and photos/a/1.png is another; give the folder of the images" in said
    Path("list.txt").write_text("photos/a/0.png\nphotos/a/1.png\n")
    assert main(["predict", "list.txt", *rest, "--out", "p.csv"]) == 0
    assert "2 images; predictions in p.csv" in lines(capfd)


@pytest.mark.parametrize("log", [".", "cat"])
@pytest.mark.parametrize("door", [lambda folder: folder, lambda folder: sorted(map(str, folder.glob("*/*.png")))])
def test_a_run_directory_is_no_folder_of_the_images(log, door, tmp_path):
    """A later call would leave its images out, or take the picture of its scores for one."""
    photos = write(tmp_path / "photos", ["cat", "dog", "owl"], 3)
    if log == "." and door(photos) != photos:
        Image.new("RGB", (8, 8)).save(photos / "top.png")
    before = sorted(photos.rglob("*"))
    images = door(photos) if log != "." or door(photos) == photos else [str(photos / "top.png")]
    with one_line("`log=.*` holds images .* choose another `log`, such as a new folder"):
        tllib_ancon.adapt(levels(3), images, log=photos / log, **HOW, **QUICK)
    assert sorted(photos.rglob("*")) == before


def test_a_run_beside_or_above_the_images_is_fine(tmp_path):
    photos = write(tmp_path / "photos", ["cat", "dog", "owl"], 3)
    for log in (photos / "run", tmp_path):
        tllib_ancon.adapt(levels(3), photos, log=log, **HOW, **QUICK)
        assert len(tllib_ancon.predict(levels(3), photos, **HOW).labels) == 6
