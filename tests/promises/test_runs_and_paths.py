"""Paths as people write them, folders as other programs leave them, and runs of which a file is missing."""

import json
import shutil

import pytest
from PIL import Image

from tests.support.networks import CLASSES, PIXELS, PREPROCESSING, QUICK, Net
from tllib_ancon import adapt, predict
from tllib_ancon.cli.main import main

SMALL = ["-a", "timm/test_resnet", "--norm-mean", "0.5", "0.5", "0.5", "--norm-std", "0.5", "0.5", "0.5"]
SMALL += ["--image-size", "32", "--workers", "0", "--threads", "1"]


def write(folder, number=12, side=32):
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        Image.fromarray(PIXELS[index % len(PIXELS), :side, :side]).save(folder / f"{index:02}.png")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run directory of a network that a library builds, and its images."""
    timm = pytest.importorskip("timm")
    folder = tmp_path_factory.mktemp("run")
    model = timm.create_model("test_resnet", num_classes=CLASSES).eval()
    adapt(model, write(folder / "photos"), log=folder / "run", method="adabn", **PREPROCESSING, **QUICK)
    return folder


def test_a_run_without_its_best_model_is_told(run, tmp_path, capfd):
    copy = shutil.copytree(run / "run", tmp_path / "run")
    predict(copy, run / "photos", workers=0)
    assert "best.pth" not in capfd.readouterr().err
    (copy / "checkpoints/best.pth").unlink()
    predict(copy, run / "photos", workers=0)
    assert "holds no best.pth; the model is that of latest.pth, the last epoch" in capfd.readouterr().err
    recorded = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**recorded, "command": "pretrain", "method": "cdan"}))
    predict(copy, run / "photos", workers=0)
    assert "best.pth" not in capfd.readouterr().err


def test_a_broken_record_of_a_run_gets_advice_that_leads_on(run, tmp_path, capfd):
    copy = shutil.copytree(run / "run", tmp_path / "run")
    (copy / "config.json").write_text("{")
    words = ["predict", str(run / "photos"), "--checkpoint", str(copy), "--out", str(tmp_path / "p.csv")]
    assert main(words) == 2
    error = capfd.readouterr().err
    assert "restore it from a copy, or remove it and pass the settings of the model, such as --arch" in error
    assert "--overwrite" not in error
    (copy / "config.json").unlink()
    assert main([*words, *SMALL]) == 0


def test_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "photos")
    adapt(Net(), "~/photos", log="~/run", method="adabn", **PREPROCESSING, **QUICK)
    assert (tmp_path / "run/result.json").is_file()
    assert len(predict(Net(), "~/photos", **PREPROCESSING, workers=0).labels) == 12


def test_the_folder_of_checkpoints_is_that_of_a_run(run):
    expected = predict(run / "run", run / "photos", workers=0).probabilities
    assert (predict(run / "run/checkpoints", run / "photos", workers=0).probabilities == expected).all()


@pytest.mark.parametrize("name", ["checkpoints/best.pth", ""])
def test_a_run_does_not_write_over_its_start(adapt, tmp_path, refused, name):
    assert main(adapt()) == 0
    best = tmp_path / "run" / "checkpoints" / "best.pth"
    before = best.read_bytes()
    checkpoint = tmp_path / "run" / name
    for more in ((), ("--overwrite",)):
        shown = refused(adapt("run", *more, checkpoint=checkpoint))
        assert "best.pth lies where this run writes its own; choose another --log" in shown
        assert best.read_bytes() == before
    assert main(adapt("next", checkpoint=checkpoint)) == 0
