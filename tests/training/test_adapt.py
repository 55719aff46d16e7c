"""Adapting and predicting from Python: any network, any images, in memory or in a run directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset
from torchvision.models import resnet18

import tllib_ancon
from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main
from tllib_ancon.config import AdaptConfig, PretrainConfig
from tllib_ancon.errors import UserError

CLASSES, SIDE, IMAGES = 3, 32, 20
QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 4, "workers": 0, "quiet": True, "seed": 3}


def sequential() -> nn.Module:
    encoder = [nn.Conv2d(3, 6, 3, stride=4), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*encoder, nn.Linear(6, CLASSES))


def residual() -> nn.Module:
    return resnet18(num_classes=CLASSES)


def transformer() -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", img_size=SIDE, patch_size=8, depth=2, num_classes=CLASSES)


NETWORKS: dict[str, Callable[[], nn.Module]] = {"plain": sequential, "torchvision": residual, "timm": transformer}


@pytest.fixture(scope="module")
def images() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(IMAGES, 3, SIDE, SIDE, generator=generator)
    return TensorDataset(pixels, torch.randint(0, CLASSES, (IMAGES,), generator=generator))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_domains(tmp_path_factory.mktemp("domains"))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_comes_back_as_it_was_given(name: str, images: TensorDataset) -> None:
    torch.manual_seed(0)
    model = NETWORKS[name]()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    result = tllib_ancon.adapt(model, images, method="nrc+ancon", neighbors=2, expanded_neighbors=2, **QUICK)
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    assert type(result.model) is type(model)
    fresh = NETWORKS[name]()
    fresh.load_state_dict(result.model.state_dict(), strict=True)
    assert any(not torch.equal(before[key], tensor) for key, tensor in fresh.state_dict().items())
    assert not any(module._forward_pre_hooks for module in result.model.modules()) or name != "plain"
    assert [line["epoch"] for line in result.metrics] == [0, 1]
    assert result.selected_epoch == 1


def test_predictions_are_those_of_the_model(images: TensorDataset) -> None:
    torch.manual_seed(0)
    model = residual()
    model.train()
    predictions = tllib_ancon.predict(model, images, batch_size=7, workers=0)
    model.eval()
    with torch.inference_mode():
        expected = model(images.tensors[0]).softmax(1)
    np.testing.assert_allclose(predictions.probabilities, expected.numpy(), atol=1e-6)
    assert predictions.labels.tolist() == expected.argmax(1).tolist()
    assert predictions.indices.tolist() == list(range(IMAGES))
    assert predictions.paths is None


def test_predicting_leaves_the_mode_of_each_module(images: TensorDataset) -> None:
    model = residual().train()
    model.layer1.eval()
    modes = [module.training for module in model.modules()]
    tllib_ancon.predict(model, images, workers=0)
    assert [module.training for module in model.modules()] == modes


class Items(Dataset):
    """The same images as other items."""

    def __init__(self, images: TensorDataset, form: Callable[[Tensor, Tensor], Any]):
        self.images = images
        self.form = form

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.form(*self.images[index])


@pytest.mark.parametrize(
    "form", [lambda x, y: x, lambda x, y: {"image": x, "label": y}, lambda x, y: {"img": x}, lambda x, y: [x, y]]
)
def test_what_an_item_may_be(images: TensorDataset, form: Callable[[Tensor, Tensor], Any]) -> None:
    torch.manual_seed(0)
    model = sequential()
    expected = tllib_ancon.predict(model, images, workers=0).probabilities
    np.testing.assert_array_equal(tllib_ancon.predict(model, Items(images, form), workers=0).probabilities, expected)


def test_labels_change_nothing_but_the_record(images: TensorDataset) -> None:
    torch.manual_seed(0)
    model = residual()
    with_labels = tllib_ancon.adapt(model, images, labels=images.tensors[1].tolist(), **QUICK)
    without = tllib_ancon.adapt(model, images, **QUICK)
    for name, tensor in without.model.state_dict().items():
        assert torch.equal(tensor, with_labels.model.state_dict()[name])
    assert "accuracy" in with_labels.metrics[0]
    assert "accuracy" not in without.metrics[0]


def test_a_run_directory_changes_nothing_and_is_gone_on_with(images: TensorDataset, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = residual()
    in_memory = tllib_ancon.adapt(model, images, **QUICK)
    kept = tllib_ancon.adapt(model, images, **QUICK, log=tmp_path / "run")
    assert (tmp_path / "run" / "result.json").is_file()
    again = tllib_ancon.adapt(model, images, **QUICK, log=tmp_path / "run")
    for name, tensor in in_memory.model.state_dict().items():
        assert torch.equal(tensor, kept.model.state_dict()[name])
        assert torch.equal(tensor, again.model.state_dict()[name])
    assert [line["infomax"] for line in again.metrics] == [line["infomax"] for line in in_memory.metrics]
    with pytest.raises(UserError, match="other settings"):
        tllib_ancon.adapt(residual(), images, **QUICK, log=tmp_path / "run")


def test_the_command_and_the_call_make_the_same_run(folders: Path, tmp_path: Path) -> None:
    source, words = tmp_path / "source", small_arguments(folders)
    assert main(["pretrain", *words, "--epochs", "2", "--log", str(source)]) == 0
    start = str(source / "checkpoints" / "best.pth")
    command = ["adapt", str(folders), "-d", "ImageList", "-t", "dark", "--checkpoint", start, "--no-hflip", "--quiet"]
    assert main([*command, "-b", "16", "-j", "0", "--epochs", "2", "--log", str(tmp_path / "command")]) == 0
    given = {"root": str(folders), "data": "ImageList", "target": ["dark"], "checkpoint": start, "no_hflip": True}
    length = {"batch_size": 16, "workers": 0, "epochs": 2, "quiet": True}
    called = tllib_ancon.adapt(**given, **length, log=tmp_path / "call")
    configured = tllib_ancon.adapt(config=AdaptConfig(**given, **length))
    kept = torch.load(tmp_path / "command" / "checkpoints" / "best.pth", weights_only=True)
    for result in (called, configured):
        assert all(torch.equal(tensor, kept[name]) for name, tensor in result.model.state_dict().items())
    config = AdaptConfig(**given, **length, log=str(tmp_path / "both"), start=PretrainConfig(
        root=str(folders), data="ImageList", source=["bright"], arch="small_cnn", scratch=True, bottleneck_dim=8,
        train_resizing="res.", val_resizing="res.", resize_size=16, no_hflip=True, batch_size=16, workers=0, epochs=2,
        quiet=True,
    ))  # fmt: skip
    both = tllib_ancon.adapt(config=config.replace(checkpoint=None))
    assert all(torch.equal(tensor, kept[name]) for name, tensor in both.model.state_dict().items())


def test_a_folder_of_pictures_and_the_answers(folders: Path) -> None:
    torch.manual_seed(0)
    model = residual()
    pictures = folders / "dark"
    result = tllib_ancon.adapt(model, pictures, image_size=SIDE, **QUICK)
    assert "accuracy" in result.metrics[0]
    predictions = tllib_ancon.predict(result.model, pictures, image_size=SIDE, workers=0)
    assert predictions.probabilities.shape == (48, CLASSES)
    np.testing.assert_allclose(predictions.probabilities.sum(1), 1, atol=1e-5)
    assert all(Path(path).is_file() for path in predictions.paths)


def test_the_adapted_model_knows_how_its_pictures_were_resized(folders: Path, tmp_path: Path) -> None:
    source, words = tmp_path / "source", small_arguments(folders)
    assert main(["pretrain", *words, "--epochs", "1", "--log", str(source)]) == 0
    given = {"root": str(folders), "data": "ImageList", "target": ["dark"], "checkpoint": str(source)}
    result = tllib_ancon.adapt(**given, batch_size=16, workers=0, epochs=1, quiet=True, log=tmp_path / "run")
    pictures = tllib_ancon.data.open_domain(str(folders), "ImageList", ["dark"])
    expected = tllib_ancon.predict(tmp_path / "run", pictures, workers=0)
    squashed = tllib_ancon.predict(result.model, pictures, workers=0)
    np.testing.assert_allclose(squashed.probabilities, expected.probabilities, atol=1e-6)


class TwoOutputs(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images, images


class NoHead(nn.Module):
    """Logits out of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Conv2d(3, CLASSES, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.encoder(images).mean((2, 3))


class Endless(Dataset):
    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(3, SIDE, SIDE)


class Words(Dataset):
    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> str:
        return "no image"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": TwoOutputs()}, "logits"),
        ({"model": nn.Flatten(0)}, "logits"),
        ({"images": Endless()}, "length"),
        ({"images": Words()}, "image"),
        ({"images": "/nowhere"}, "/nowhere"),
        ({"labels": [0]}, "labels"),
        ({"labels": [CLASSES] * IMAGES}, f"`labels` has {CLASSES}"),
        ({"head": "classifier"}, "classifier"),
        ({"save_epochs": True}, "pass `log`"),
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"model": None}, "no model to adapt"),
        ({"config": AdaptConfig()}, "not both"),
        ({"train_transform": nn.Identity()}, "`evaluation_transform` is needed"),
        ({"batch_size": 64}, "pass a smaller `batch_size`"),
        ({"arch": "resnet18"}, "`arch` is for checkpoints"),
        ({"bottleneck_dropout": 0.5}, "`bottleneck_dropout` is for checkpoints"),
        ({"scratch": True}, "`scratch` is for checkpoints"),
        ({"checkpoint": "runs/source"}, "give a model or `checkpoint`, not both"),
        ({"start": PretrainConfig(source=("bright",), log="runs/source")}, "give a model or `start`, not both"),
    ],
)
def test_what_is_refused(images: TensorDataset, changed: dict[str, Any], message: str) -> None:
    given = {"model": sequential(), "images": images, **QUICK, **changed}
    with pytest.raises(UserError) as error:
        tllib_ancon.adapt(**given)
    assert message in str(error.value)


@pytest.mark.parametrize(("name", "value"), [("arch", "resnet18"), ("no_pool", True), ("bottleneck_dim", 64)])
def test_predict_refuses_settings_of_the_network_of_a_model_that_is_given(
    images: TensorDataset, name: str, value: Any
) -> None:
    with pytest.raises(UserError, match=f"`{name}` is for checkpoints"):
        tllib_ancon.predict(sequential(), images, workers=0, **{name: value})


def test_a_model_without_a_head_can_do_without_features(images: TensorDataset) -> None:
    assert tllib_ancon.adapt(NoHead(), images, **QUICK, adapted="all").selected_epoch == 1
    with pytest.raises(UserError, match="no Linear layer as its head"):
        tllib_ancon.adapt(NoHead(), images, **QUICK, adapted="all", method="nrc")


def test_pictures_for_a_network_that_nothing_is_known_of(folders: Path) -> None:
    with pytest.raises(UserError, match="pass `evaluation_transform`, to adapt also `train_transform`"):
        tllib_ancon.adapt(sequential(), folders / "dark", **QUICK)


def test_the_adapted_model_of_a_run_knows_its_pictures(folders: Path, tmp_path: Path) -> None:
    words = ["pretrain", str(folders), "-d", "ImageFolder", "-s", "bright", "-a", "small_cnn", "--scratch", "-b", "16"]
    assert main([*words, "-j", "0", "--image-size", "16", "--epochs", "1", "--quiet", "--log", str(tmp_path)]) == 0
    given = {**QUICK, "batch_size": 16}
    result = tllib_ancon.adapt(tmp_path, folders / "dark", **given)
    assert result.config.image_size == 16
    alone = tllib_ancon.predict(result.model, folders / "dark", workers=0)
    told = tllib_ancon.predict(result.model, folders / "dark", workers=0, image_size=16)
    np.testing.assert_array_equal(alone.probabilities, told.probabilities)
