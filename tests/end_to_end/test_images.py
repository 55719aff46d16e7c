"""A run does not depend on how its images are loaded: as which kind of dataset, from a cache, by how many processes."""

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import CLASSES
from tests.end_to_end.killable import differences, weights
from tllib_ancon.cli.main import main
from tllib_ancon.data.loading import Workers
from tllib_ancon.training.run import RunDirectory

CROPS = ["--train-resizing", "default", "--image-size", "14", "-b", "8", "--override"]
SIZES = ["--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "16", "--no-hflip"]
SHORT = ["--epochs", "2", "-b", "16", "-j", "0", "--quiet"]


def test_a_run_depends_on_neither_cache_nor_workers(adapt, tmp_path, monkeypatch):
    """An adaptation has as many workers as it was told, for all its loaders."""
    started: list[int] = []
    start = Workers._start
    monkeypatch.setattr(Workers, "_start", lambda workers: started.append(workers.count) or start(workers))
    assert main(adapt("plain", *CROPS)) == 0
    assert main(adapt("cached", *CROPS, "--cache", str(tmp_path / "cache"), "-j", "2")) == 0
    assert main(adapt("another seed", *CROPS, "--seed", "8")) == 0
    assert started == [2]
    plain = weights(tmp_path / "plain")
    assert differences(plain, weights(tmp_path / "cached")) == []
    assert differences(plain, weights(tmp_path / "another seed")) != []


@pytest.fixture
def lists(domains, tmp_path) -> Path:
    """The dark domain with a list in the order of its class folders."""
    (tmp_path / "dark").symlink_to(domains / "dark")
    (tmp_path / "image_list").mkdir()
    lines = []
    for path in sorted((domains / "dark").rglob("*.png")):
        name = path.parent.name
        lines.append(f"dark/{name}/{path.name} {CLASSES.index(name)}\n")
    (tmp_path / "image_list" / "dark.txt").write_text("".join(lines))
    (tmp_path / "image_list" / "classes.txt").write_text("\n".join(CLASSES))
    return tmp_path


def test_the_same_images_are_the_same_run_as_every_kind_of_dataset(domains, lists, source_checkpoint, tmp_path):
    linked = ["-t", "dark", "--allow-outside-root"]
    more = ["--cache", str(tmp_path / "cache"), "--skip-corrupt", "-j", "1", "--save-predictions"]
    kinds = {
        "ImageList": [str(lists), "-d", "ImageList", *linked],
        "ImageFolder": [str(lists), "-d", "ImageFolder", *linked, *more],
        "Folder": [str(domains / "dark"), "-d", "Folder", "-t", ".", *more],
    }
    for kind, words in kinds.items():
        start = ["--checkpoint", str(source_checkpoint), *SIZES, "--log", str(tmp_path / kind)]
        assert main(["adapt", words[0], *SHORT, *start, *words[1:]]) == 0
    expected = weights(tmp_path / "ImageList", "best.pth")
    scores = RunDirectory(tmp_path / "ImageList").result()["selected"]
    for kind in ("ImageFolder", "Folder"):
        found = weights(tmp_path / kind, "best.pth")
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items()), kind
        same = {"infomax", "loss"} if kind == "Folder" else {"infomax", "loss", "accuracy", "ece"}
        selected = RunDirectory(tmp_path / kind).result()["selected"]
        assert {name: selected[name] for name in same} == {name: scores[name] for name in same}
        assert ("accuracy" in selected) == (kind != "Folder")
        config = json.loads((tmp_path / kind / "config.json").read_text())
        assert config["inputs"]["classes"] == list(CLASSES)


def test_class_folders_of_another_dataset_are_refused(source_checkpoint, tmp_path, refused):
    for name in ("mug", "bike", "car"):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "a.png").touch()
    start = ["--checkpoint", str(source_checkpoint), *SIZES, *SHORT, "--log", str(tmp_path / "run")]
    shown = refused(["adapt", str(tmp_path), "-d", "ImageFolder", "-t", "other", *start])
    assert "'bike' first: bike, car, mug instead of red, green, blue" in shown
    assert "--data is missing: which dataset lies in" in refused(["adapt", str(tmp_path), "-t", "other", *start])
