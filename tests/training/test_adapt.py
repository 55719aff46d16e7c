"""Adapting and predicting from Python: any network, any images, in memory or in a run directory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import tllib_ancon
from tests.conftest import REFUSED
from tests.end_to_end.killable import differences
from tllib_ancon.cli.main import main
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.runtime.errors import UserError

CLASSES, SIDE, IMAGES = 3, 32, 20
QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 4, "workers": 0, "quiet": True, "seed": 3}


def sequential() -> nn.Module:
    encoder = [nn.Conv2d(3, 6, 3, stride=4), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    torch.manual_seed(0)
    return nn.Sequential(*encoder, nn.Linear(6, CLASSES))


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.fixture(scope="module")
def images() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(IMAGES, 3, SIDE, SIDE, generator=generator)
    return TensorDataset(pixels, torch.randint(0, CLASSES, (IMAGES,), generator=generator))


def test_neither_labels_nor_a_run_directory_change_anything_and_the_run_is_gone_on_with(
    images: TensorDataset, tmp_path: Path
) -> None:
    model, log = sequential(), tmp_path / "run"
    plain = tllib_ancon.adapt(model, images, **QUICK)
    labelled = tllib_ancon.adapt(model, images, labels=images.tensors[1].tolist(), **QUICK)
    kept, again = (tllib_ancon.adapt(model, images, **QUICK, log=log) for _ in range(2))
    assert (log / "result.json").is_file()
    assert ["accuracy" in result.metrics[0] for result in (plain, labelled)] == [False, True]
    for other in (labelled, kept, again):
        assert differences(weights(plain.model), weights(other.model)) == []
        # A run with labels predicts the whole target, others the sample: other batches, which round differently.
        scores = [[line["infomax"] for line in result.metrics] for result in (other, plain)]
        np.testing.assert_allclose(*scores, rtol=0, atol=1e-9)
    with pytest.raises(UserError, match="other settings"):
        tllib_ancon.adapt(nn.Sequential(model, nn.Linear(CLASSES, CLASSES)), images, **QUICK, log=log)
    with pytest.raises(UserError, match="cannot be made longer: the learning rate of each step depends on how many"):
        tllib_ancon.adapt(model, images, **{**QUICK, "epochs": 2}, log=log)


def test_every_way_in_makes_the_same_run(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    """The command, keywords and a configuration; and the model knows how its images look."""
    start = str(source_checkpoint)
    command = ["adapt", str(domains), "-d", "ImageList", "-t", "dark", "--checkpoint", start, "--no-hflip", "--quiet"]
    assert main([*command, "-b", "16", "-j", "0", "--epochs", "2", "--log", str(tmp_path / "command")]) == 0
    given = {"root": str(domains), "data": "ImageList", "target": ["dark"], "checkpoint": start, "no_hflip": True}
    length = {"batch_size": 16, "workers": 0, "epochs": 2, "quiet": True}
    called = tllib_ancon.adapt(**given, **length, log=tmp_path / "call")
    configured = tllib_ancon.adapt(AdaptConfig(**given, **length))
    kept = torch.load(tmp_path / "command" / "checkpoints" / "best.pth", weights_only=True)
    for result in (called, configured):
        assert all(torch.equal(tensor, kept[name]) for name, tensor in result.model.state_dict().items())
    dark = tllib_ancon.data.open_domain(str(domains), "ImageList", ["dark"])
    expected, squashed = (tllib_ancon.predict(model, dark, workers=0) for model in (tmp_path / "call", called.model))
    np.testing.assert_allclose(squashed.probabilities, expected.probabilities, atol=1e-6)


class Endless(Dataset):
    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(3, SIDE, SIDE)


STATE_DICT = "not of type OrderedDict; of a state dict pass the network that has loaded it, of a"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        *REFUSED["adaptations"],
        ({"model": nn.Flatten(0)}, "logits"),
        ({"images": Endless()}, "length"),
        ({"model": sequential().state_dict()}, STATE_DICT),
        ({"model": sequential}, "not of type function; of a state dict pass the network that has loaded it, of a"),
        ({"model": torch.jit.script(sequential())}, "pass the torch.nn.Module that it was made from"),
        ({"model": AdaptConfig()}, "not both"),
        ({"config": AdaptConfig()}, "not both"),
        ({"train_transform": nn.Identity()}, "`evaluation_transform` is needed"),
        ({"start": "latest"}, "give a model or `start`, not both"),
    ],
)
def test_what_is_refused(images: TensorDataset, changed: dict[str, Any], message: str) -> None:
    given = {"model": sequential(), "images": images, **QUICK, **changed}
    with pytest.raises(UserError) as error:
        tllib_ancon.adapt(**given)
    assert message in str(error.value)


def test_predict_refuses_what_is_no_model_and_settings_of_a_checkpoints_network(images: TensorDataset) -> None:
    with pytest.raises(UserError, match=STATE_DICT):
        tllib_ancon.predict(sequential().state_dict(), images)
    for name, value in {"arch": "resnet18", "no_pool": True, "bottleneck_dim": 64}.items():
        with pytest.raises(UserError, match=f"`{name}` is for checkpoints"):
            tllib_ancon.predict(sequential(), images, workers=0, **{name: value})


@pytest.mark.parametrize(("side", "train"), [(16, "shifted by up to 4 pixels"), (64, "cropped at random")])
def test_a_network_that_nothing_is_known_of_sees_whole_images(
    side: int, train: str, domains: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pixels = 2 * np.random.default_rng(0).integers(1, 128, (8, side, side, 3), dtype=np.uint8)
    seen: dict[bool, list[Tensor]] = {True: [], False: []}
    model = sequential()
    with pytest.raises(UserError, match="pass `evaluation_transform`, to adapt also `train_transform`"):
        tllib_ancon.adapt(model, domains / "dark", **QUICK)
    model.register_forward_pre_hook(lambda module, args: seen[torch.is_grad_enabled()].append(args[0].clone()))
    given = {"image_size": side, "norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3}
    tllib_ancon.adapt(model, list(pixels), **{**QUICK, "quiet": False}, **given)
    told = capsys.readouterr().err
    assert f"images are resized to {side} × {side} pixels, in training {train}" in told
    whole = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    tllib_ancon.predict(model, list(pixels), workers=0, **given)
    assert torch.equal(torch.cat(seen[False])[-8:], whole)
    only_shifted = bool(torch.isin(torch.cat(seen[True]), torch.cat([whole.flatten(), torch.zeros(1)])).all())
    assert only_shifted == (side < 64)
