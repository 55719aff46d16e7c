"""Runs of models that were given as Python objects: every command goes on from their directory."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset
from torchvision import models

import tllib_ancon
from tllib_ancon.cli.main import main
from tllib_ancon.runtime.errors import UserError

IMAGES, CLASSES = 24, 3
LABELS = [number % CLASSES for number in range(IMAGES)]
OWN = """
from torch import nn

def build():
    layers = nn.Conv2d(3, 6, 3, stride=4), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(6, 3))

def nothing():
    return 1
"""
QUICK: dict[str, Any] = {"method": "shot-im", "epochs": 3, "batch_size": 4, "workers": 0, "quiet": True, "lr": 0.3}
SIZED = {"image_size": 32, "norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3}


def transformer() -> nn.Module:
    return timm.create_model("test_vit", img_size=32, patch_size=8, depth=2, num_classes=CLASSES)


def headed() -> nn.Module:
    network = models.resnet18()
    network.fc = nn.Linear(512, CLASSES)
    return network


def own() -> nn.Module:
    namespace: dict[str, Any] = {}
    exec(OWN, namespace)  # as a program would that keeps it in no module
    network: nn.Module = namespace["build"]()
    network[5].weight.data *= 50  # so that images are of several classes
    return network


def of_transformers() -> Any:
    transformers = pytest.importorskip("transformers")
    settings = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=CLASSES)
    network = transformers.ResNetForImageClassification(settings)
    network.classifier[1].weight.data *= 50  # so that images are of several classes
    return network


NETWORKS = {"timm": transformer, "torchvision": headed, "transformers": of_transformers, "own": own}


def sizes(name: str) -> dict[str, Any]:
    """How images are prepared, as far as the network's library does not tell."""
    return SIZED if name in ("own", "transformers") else {"image_size": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``photos/`` and the module of the network that no library has."""
    folder, generator = tmp_path_factory.mktemp("made"), np.random.default_rng(0)
    (folder / "photos").mkdir()
    (folder / "networks.py").write_text(OWN)
    for number in range(IMAGES):
        pixels = generator.integers(0, 20 + 9 * number, (32, 32, 3), dtype=np.uint8) * (1, 1, number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{number:02d}.png")
    return folder


@pytest.fixture(scope="module", params=NETWORKS)
def made(request: pytest.FixtureRequest, folder: Path) -> tuple[str, nn.Module, tllib_ancon.AdaptationResult]:
    torch.manual_seed(0)
    model = NETWORKS[request.param]()
    photos = sorted(map(str, (folder / "photos").iterdir())) if request.param == "torchvision" else folder / "photos"
    given = {**QUICK, **sizes(request.param), "log": str(folder / request.param)}
    return request.param, model, tllib_ancon.adapt(model, photos, labels=LABELS, **given)


@pytest.fixture
def flags(made: tuple[str, Any, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a command needs beside the directory, in a folder with the network's module."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(folder))])
    return ["--model", "networks:build"] if made[0] == "own" else []


def test_every_command_goes_on_from_its_directory(
    made: tuple[str, nn.Module, Any], flags: list[str], folder: Path, tmp_path: Path, capsys
) -> None:
    name, model, result = made
    commands = (
        ["predict", "photos", "--checkpoint", name, "--probabilities", "--out", str(tmp_path / "out.npz")],
        ["evaluate", ".", "-d", "Folder", "-t", "photos", "--checkpoint", name],
        ["certify", name, "--root", "photos"],
        ["adapt", ".", "-d", "Folder", "-t", "photos", "--checkpoint", name, "--epochs", "1", "--log", f"{name}-again"],
    )
    for words in commands:
        assert main([*words, "-j", "0", *flags]) == 0, capsys.readouterr().err
    exported = tmp_path / "model.safetensors"
    assert main(["export", name, "--format", "state-dict", "--out", str(exported), *flags]) == 0
    network = model if flags else name
    predictions = tllib_ancon.predict(network, "photos", workers=0, checkpoint=name if flags else None)
    expected = tllib_ancon.predict(result.model, "photos", workers=0, **sizes(name))
    np.testing.assert_array_equal(predictions.probabilities, expected.probabilities)
    written = np.load(tmp_path / "out.npz")
    assert str(result).startswith("shot-im, 3 epochs\n")
    assert "infomax of the 2 held-out images" in result._repr_html_()
    assert str(predictions).startswith("24 images, 3 classes; most frequent: ")
    order = np.argsort(written["paths"])
    np.testing.assert_allclose(written["probabilities"][order], expected.probabilities, atol=1e-6)
    kept = torch.load(folder / name / "checkpoints" / "source.pth", weights_only=True)
    assert all(torch.equal(tensor, kept[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "nowhere", "--checkpoint", "own"],
        ["evaluate", "nowhere", "-d", "Folder", "-t", "photos", "--checkpoint", "own"],
        ["certify", "own", "--root", "nowhere"],
        ["export", "own", "--out", "model.onnx"],
    ],
)
@pytest.mark.parametrize("made", ["own"], indirect=True)
def test_a_network_that_nothing_builds_is_asked_for_before_images_are_opened(
    made: tuple[str, Any, Any], flags: list[str], words: list[str], capsys
) -> None:
    for given, told in (
        ([], "pass --model MODULE:FUNCTION, the function that returns such a network"),
        (["--model", "networks"], "--model networks: expected MODULE:FUNCTION"),
        (["--model", "networks:missing"], "gave no network (module 'networks' has no attribute"),
        (["--model", "networks:nothing"], "not of type int"),
    ):
        assert main([*words, *given]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert len(error.splitlines()) == 1


def test_the_session_is_one_for_python_and_the_command(
    made: tuple[str, nn.Module, Any], flags: list[str], folder: Path, capsys
) -> None:
    name, _, result = made
    (folder / name / "answers.jsonl").unlink(missing_ok=True)
    session = result.certify(workers=0)
    assert session.question is not None
    session.answer(session.question.options[0])
    if name != "torchvision":  # of which the directory knows no folder
        assert main(["certify", name, "-j", "0", *flags]) == 0
        assert "1 of" in capsys.readouterr().out
    again = result.certify(LABELS if session.question is None else None, workers=0)
    assert again.answers == session.answers
    assert (folder / name / "certificate.json").is_file()


@pytest.mark.parametrize("made", ["own"], indirect=True)
def test_certifying_without_a_directory(made: tuple[str, nn.Module, Any], folder: Path) -> None:
    """From two models and images, and from a result that was kept nowhere."""
    name, model, kept = made
    settings = {"workers": 0, **sizes(name)}
    result = tllib_ancon.adapt(model, folder / "photos", **{**QUICK, **settings})
    sessions = (
        tllib_ancon.certify(model, result.model, folder / "photos", labels=LABELS, **settings),
        result.certify(LABELS, workers=0),
        kept.certify(workers=0),
    )
    right = [tllib_ancon.predict(one, folder / "photos", **settings).labels == LABELS for one in (model, result.model)]
    for session in sessions[:2]:
        assert session.question is None
        assert session.certificate["labels"] == len(session.answers) > 0
        assert "24 images" in repr(session)
    if len(sessions[0].answers) == len(sessions[0]):
        gain = np.mean(right[1]) - np.mean(right[0])
        assert sessions[0].certificate["difference"] == pytest.approx(gain)
    with pytest.raises(UserError, match=r"`labels` are int64 of shape \(23,\); expected for each of 24 images"):
        tllib_ancon.certify(model, result.model, folder / "photos", labels=LABELS[1:], **settings)


def test_tensors_and_transforms_of_ones_own(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no file says is asked for: how images are prepared; a program takes what the run's tensors were."""
    monkeypatch.chdir(folder)
    images = TensorDataset(torch.randn(IMAGES, 3, 20, 20))
    model = nn.Sequential(nn.Flatten(), nn.Linear(1200, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES))
    result = tllib_ancon.adapt(model, images, **QUICK, log=str(tmp_path / "run"))
    again = tllib_ancon.predict(model, images, checkpoint=str(tmp_path / "run"), workers=0)
    expected = tllib_ancon.predict(result.model, images, workers=0)
    np.testing.assert_array_equal(again.probabilities, expected.probabilities)
    with pytest.raises(UserError, match="the preprocessing of this network is unknown"):
        tllib_ancon.predict(model, "photos", checkpoint=str(tmp_path / "run"), workers=0)
    assert result.certify(workers=0).question is not None


@pytest.mark.parametrize(
    ("shape", "given", "side"), [((32, 32), {}, 32), ((32, 32), {"image_size": 64}, 64), ((32, 40), {}, 224)]
)
def test_arrays_keep_their_size_where_nothing_is_known_of_the_network(
    shape: tuple[int, int], given: dict[str, int], side: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, *shape, 3), dtype=np.uint8)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    normalised = {"norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3, **given}
    seen: set[int] = set()
    model[0].register_forward_hook(lambda module, images, output: seen.update(images[0].shape[2:]))
    tllib_ancon.predict(model, pixels, workers=0, **normalised)
    assert seen == {side}
    assert tllib_ancon.adapt(model, pixels, **QUICK, **normalised).config.image_size == side
