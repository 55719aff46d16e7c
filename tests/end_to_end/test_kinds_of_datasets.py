"""The same pictures give the same run, whatever kind of dataset they are read as."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import CLASSES
from tllib_ancon.cli.main import main
from tllib_ancon.training.run_directory import RunDirectory

MODEL = ["-a", "small_cnn", "--scratch", "--bottleneck-dim", "8"]
SIZES = ["--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "16", "--no-hflip"]
SHORT = ["--epochs", "2", "-b", "16", "-j", "0", "--quiet"]


@pytest.fixture(scope="module")
def kinds(domains: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The domain ``dark`` as each kind, all in the order of its class folders."""
    root = tmp_path_factory.mktemp("kinds")
    (root / "dark").symlink_to(domains / "dark")
    pictures = sorted((domains / "dark").rglob("*.png"))
    (root / "image_list").mkdir()
    lines = (f"dark/{path.parent.name}/{path.name} {CLASSES.index(path.parent.name)}\n" for path in pictures)
    (root / "image_list" / "dark.txt").write_text("".join(lines))
    (root / "image_list" / "classes.txt").write_text("\n".join(CLASSES))
    kinds = {
        "ImageList": [str(root), "-d", "ImageList", "-t", "dark", "--allow-outside-root"],
        "ImageFolder": [str(root), "-d", "ImageFolder", "-t", "dark", "--allow-outside-root"],
        "Folder": [str(domains / "dark"), "-d", "Folder", "-t", "."],
    }
    try:
        import datasets
    except ImportError:
        return kinds
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=sorted(CLASSES)))
    columns = {
        "image": list(map(str, pictures)),
        "label": [sorted(CLASSES).index(path.parent.name) for path in pictures],
    }
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(root / "saved")
    return {**kinds, "hf:": [str(root), "-d", "hf:saved", "-t", "train"]}


@pytest.fixture(scope="module")
def whole(kinds, source_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapted(kinds["ImageList"], source_checkpoint, tmp_path_factory.mktemp("whole"))


def adapted(images: list[str], checkpoint: Path, log: Path, *more: str) -> Path:
    start = ["--checkpoint", str(checkpoint), *SIZES, *SHORT, "--log", str(log), *more]
    assert main(["adapt", *images, *start]) == 0
    return log


@pytest.mark.parametrize("kind", ["ImageFolder", "Folder", "hf:"])
def test_adaptation(kinds, kind: str, source_checkpoint: Path, whole: Path, tmp_path: Path) -> None:
    if kind not in kinds:
        pytest.skip("the extra huggingface is not installed")
    more = ["--cache", str(tmp_path / "cache"), "--skip-corrupt", "-j", "1", "--save-predictions"]
    run = adapted(kinds[kind], source_checkpoint, tmp_path / "run", *more)
    ours, theirs = (torch.load(path / "checkpoints" / "best.pth", weights_only=True) for path in (run, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    ours, theirs = (RunDirectory(path).result()["selected"] for path in (run, whole))
    assert ("accuracy" in ours) == (kind != "Folder")
    assert all(ours[name] == theirs[name] for name in {"infomax", "loss", "accuracy", "ece"} & ours.keys())
    classes = json.loads((run / "config.json").read_text())["inputs"]["classes"]
    assert classes == list(CLASSES)


@pytest.mark.parametrize("kind", ["ImageFolder", "hf:"])
def test_evaluation(kinds, kind: str, source_checkpoint: Path, tmp_path: Path) -> None:
    if kind not in kinds:
        pytest.skip("the extra huggingface is not installed")
    scores = []
    for name in ("ImageList", kind):
        file = tmp_path / f"{name}.json"
        start = ["--checkpoint", str(source_checkpoint), *SIZES, "-j", "0", "--json", str(file)]
        assert main(["evaluate", *kinds[name], *start]) == 0
        scores.append(json.loads(file.read_text()))
    assert scores[0] == scores[1]


def test_class_folders_of_another_dataset_are_refused(domains, source_checkpoint, tmp_path, capsys) -> None:
    for name in ("mug", "bike", "car"):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "a.png").touch()
    start = ["--checkpoint", str(source_checkpoint), *SIZES, *SHORT, "--log", str(tmp_path / "run")]
    assert main(["adapt", str(tmp_path), "-d", "ImageFolder", "-t", "other", *start]) == 2
    shown = capsys.readouterr().err
    assert "'bike' first: bike, car, mug instead of red, green, blue" in shown
    assert main(["adapt", str(tmp_path), "-t", "other", *start]) == 2
    assert "--data is missing: which dataset lies in" in capsys.readouterr().err
