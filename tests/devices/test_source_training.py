"""Whole trainings of a source model, and predictions, on the stand-in for a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.devices.stand_in import StandIn
from tests.domains_on_disk import write_domain
from tllib_ancon.config import PretrainConfig
from tllib_ancon.models.state_dicts import load_state_dict
from tllib_ancon.training.predict import predict
from tllib_ancon.training.pretrain import pretrain

TRAININGS: dict[str, dict[str, Any]] = {
    "erm": {"method": "erm"},
    "erm, smoothed": {"method": "erm", "label_smoothing": 0.1, "channels_last": True, "device_augmentation": True},
    "erm, belief matching": {"method": "erm", "loss": "belief-matching"},
    "cdan": {"method": "cdan"},
    "cdan, randomized, entropy": {"method": "cdan", "randomized": True, "randomized_dim": 16, "entropy": True},
    "mdd": {"method": "mdd"},
}


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("domains")
    for seed, name in enumerate(("bright", "dark")):
        write_domain(root, name, 12, seed=seed, side=16)
    return root


def train(domains: Path, log: Path, **settings: Any) -> dict[str, torch.Tensor]:
    network = {"arch": "small_cnn", "scratch": True, "bottleneck_dim": 8, "image_size": 16, "resize_size": 16}
    named = {"root": str(domains), "data": "ImageList", "source": ("bright",), "target": ("dark",), "log": str(log)}
    fixed = {"epochs": 1, "iters_per_epoch": 3, "batch_size": 4, "workers": 0, "quiet": True}
    sizes = {"train_resizing": "res.", "val_resizing": "res.", "no_hflip": True}
    result = pretrain(PretrainConfig(**{**network, **named, **fixed, **sizes, **settings}))
    return load_state_dict(log / "checkpoints" / result["checkpoint"])


@pytest.mark.parametrize("name", TRAININGS)
def test_every_source_training(domains: Path, tmp_path: Path, name: str) -> None:
    expected = train(domains, tmp_path / "cpu", **TRAININGS[name])
    with StandIn():
        found = train(domains, tmp_path / "device", **TRAININGS[name])
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-3, atol=1e-3, msg=key)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("method", ["erm", "cdan", "mdd"])
def test_autocast(domains: Path, tmp_path: Path, method: str, precision: str) -> None:
    with StandIn():
        found = train(domains, tmp_path, method=method, mixed_precision=precision)
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_predictions(domains: Path, tmp_path: Path) -> None:
    train(domains, tmp_path)
    expected = predict(tmp_path, domains / "dark")
    with StandIn():
        found = predict(tmp_path, domains / "dark")
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-5)
