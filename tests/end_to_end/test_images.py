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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The workers of each pool that was started."""
    numbers, start = [], Workers._start
    monkeypatch.setattr(Workers, "_start", lambda self: numbers.append(self.count) or start(self))
    return numbers


def test_a_run_depends_on_neither_cache_nor_workers(adapt, tmp_path: Path, started) -> None:
    found, cache = {}, ["--cache", str(tmp_path / "cache")]
    for name, more in {
        "in workers": [],
        "in workers, cached": [*cache, "-j", "2"],
        "another seed": ["--seed", "8"],
    }.items():
        assert main(adapt(name, *CROPS, *more)) == 0
        found[name] = weights(tmp_path / name)
    assert differences(found["in workers"], found["in workers, cached"]) == []
    assert differences(found["in workers"], found["another seed"]) != []
    assert started == [2]  # an adaptation has as many as it was told, for all its loaders


def adapted(images: list[str], checkpoint: Path, log: Path, *more: str) -> Path:
    assert main(["adapt", *images, "--checkpoint", str(checkpoint), *SIZES, *SHORT, "--log", str(log), *more]) == 0
    return log


def test_the_same_images_are_the_same_run_as_every_kind_of_dataset(
    domains: Path, source_checkpoint: Path, tmp_path: Path
) -> None:
    """All in the order of their class folders."""
    (tmp_path / "dark").symlink_to(domains / "dark")
    (tmp_path / "image_list").mkdir()
    images = sorted((domains / "dark").rglob("*.png"))
    lines = (f"dark/{path.parent.name}/{path.name} {CLASSES.index(path.parent.name)}\n" for path in images)
    (tmp_path / "image_list" / "dark.txt").write_text("".join(lines))
    (tmp_path / "image_list" / "classes.txt").write_text("\n".join(CLASSES))
    root, linked = str(tmp_path), ["-t", "dark", "--allow-outside-root"]
    whole = adapted([root, "-d", "ImageList", *linked], source_checkpoint, tmp_path / "whole")
    kinds = {
        "ImageFolder": [root, "-d", "ImageFolder", *linked],
        "Folder": [str(domains / "dark"), "-d", "Folder", "-t", "."],
    }
    for kind, words in kinds.items():
        more = ["--cache", str(tmp_path / "cache"), "--skip-corrupt", "-j", "1", "--save-predictions"]
        run = adapted(words, source_checkpoint, tmp_path / kind, *more)
        ours, theirs = (weights(path, "best.pth") for path in (run, whole))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs), kind
        ours, theirs = (RunDirectory(path).result()["selected"] for path in (run, whole))
        assert ("accuracy" in ours) == (kind != "Folder")
        assert all(ours[name] == theirs[name] for name in {"infomax", "loss", "accuracy", "ece"} & ours.keys()), kind
        assert json.loads((run / "config.json").read_text())["inputs"]["classes"] == list(CLASSES)


def test_class_folders_of_another_dataset_are_refused(source_checkpoint: Path, tmp_path: Path, refused) -> None:
    for name in ("mug", "bike", "car"):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "a.png").touch()
    start = ["--checkpoint", str(source_checkpoint), *SIZES, *SHORT, "--log", str(tmp_path / "run")]
    shown = refused(["adapt", str(tmp_path), "-d", "ImageFolder", "-t", "other", *start])
    assert "'bike' first: bike, car, mug instead of red, green, blue" in shown
    assert "--data is missing: which dataset lies in" in refused(["adapt", str(tmp_path), "-t", "other", *start])
