"""Whole runs of every method and option on the stand-in for a GPU, indices on the CPU as the loader gives them.

Each run scores the start model, takes steps (forward, backward, optimiser) and scores and keeps the adapted model. It
ends where the same run on the CPU ends, up to rounding: the devices differ in which of PyTorch's and of this package's
ways they take.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.devices.stand_in import DEVICE, StandIn, device_of
from tests.domains_on_disk import write_domain
from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.errors import UserError
from tllib_ancon.settings import spec
from tllib_ancon.training.adapt import AdaptationResult, adapt
from tllib_ancon.training.adaptation import Adaptation

CLASSES, SIDE, IMAGES = 3, 8, 14
ROUNDING = 1e-4
PIXELS = 2e-2
"""Where images are interpolated elsewhere: of 255 levels it is 2."""
HALF = 5e-2
"""Of half precision."""


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Dropout(0.1), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES),
        )  # fmt: skip


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("domains")
    write_domain(root, "dark", IMAGES, seed=0, side=SIDE)
    write_domain(root, "bright", IMAGES, seed=1, side=SIDE)
    return root


def run(domains: Path, log: Path | None = None, **settings: Any) -> AdaptationResult:
    torch.manual_seed(0)
    sizes = {"image_size": SIDE, "resize_size": SIDE, "train_resizing": "res.", "val_resizing": "res."}
    fixed = {"epochs": 1, "batch_size": 6, "workers": 0, "quiet": True, "norm_mean": (0.4,) * 3, "norm_std": (0.2,) * 3}
    named = {"root": str(domains), "data": "ImageList", "target": ("dark",)}
    few = few_neighbors(settings.get("method", "ancon"), 2, 2)
    log_of = {} if log is None else {"log": str(log)}
    return adapt(Network(), **{**named, **sizes, **fixed, **few, **log_of, **settings})


def same(one: AdaptationResult, other: AdaptationResult, tolerance: float = ROUNDING) -> None:
    expected, found = on_cpu(one.model), on_cpu(other.model)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=tolerance, atol=tolerance, msg=name)
    for line in (*one.metrics, *other.metrics):
        line.pop("images_per_second", None)
    torch.testing.assert_close(other.metrics, one.metrics, rtol=tolerance, atol=tolerance)


def on_cpu(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def everything_on(model: nn.Module) -> set[torch.device]:
    return {device_of(tensor) for tensor in model.state_dict().values()}


def named_values() -> Iterator[tuple[str, str, Any]]:
    """Method, option, value: of each option that is no number."""
    for method in methods.names():
        for option, field in methods.settings(method).items():
            for value in spec(field).choices or ((True, False) if field.type is bool else ()):
                yield method, option, value


def options() -> dict[str, dict[str, Any]]:
    """Each such value with the first method that takes it, and what NRC and its votes combine."""
    found: dict[tuple[str, Any], str] = {}
    for method, option, value in named_values():
        with contextlib.suppress(UserError):
            methods.resolve(method, {option: value})
            found.setdefault((option, value), method)
    combined = {
        f"nrc+ancon {search} {storage} {confidence}": {
            "method": "nrc+ancon", "search": search, "storage": storage, "confidence": confidence
        }
        for search in ("exact", "cached")
        for storage in ("dense", "sparse")
        for confidence in ("softmax", "mc-dropout")
    }  # fmt: skip
    alone = {
        f"{method} {option}={value}": {"method": method, option: value} for (option, value), method in found.items()
    }
    return {**alone, **combined}


OPTIONS = options()
TRAINING: dict[str, dict[str, Any]] = {
    "device augmentation": {"device_augmentation": True, "train_resizing": "default", "resize_size": 12},
    "rotated on the device": {"device_augmentation": True, "rotation": 10.0, "padding": 2},
    "channels last": {"channels_last": True},
    "channels last, device augmentation": {"channels_last": True, "device_augmentation": True},
    "fused": {"fused": True},
    "accumulated": {"accumulation_steps": 2},
    "dropout": {"dropout": True},
    "norm-affine": {"adapted": "norm-affine"},
    "all": {"adapted": "all"},
    "corr_c": {"criterion": "corr_c"},
    "snd": {"criterion": "snd", "hold_out": 0.2},
    "nothing held out": {"hold_out": 0.0},
    "deterministic": {"deterministic": True},
}


def on_both(domains: Path, tolerance: float = ROUNDING, **settings: Any) -> None:
    expected = run(domains, **settings)
    with StandIn():
        found = run(domains, **settings)
        assert everything_on(found.model) == {DEVICE}
    same(expected, found, tolerance)


@pytest.mark.parametrize("method", methods.names())
def test_every_method(domains: Path, method: str) -> None:
    on_both(domains, method=method)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(domains: Path, name: str) -> None:
    on_both(domains, **OPTIONS[name])


def test_no_value_of_an_option_is_left_out() -> None:
    assert {(option, value) for _, option, value in named_values()} == {
        entry for options in OPTIONS.values() for entry in options.items() if entry[0] != "method"
    }


@pytest.mark.parametrize("name", TRAINING)
def test_every_way_to_train(domains: Path, name: str) -> None:
    on_device = "device_augmentation" in TRAINING[name]
    on_both(domains, PIXELS if on_device else ROUNDING, method="nrc+ancon", **TRAINING[name])


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("method", ["gce+ancon", "nrc+ancon-auto", "shot+elr", "aad+ancon"])
def test_autocast(domains: Path, method: str, precision: str, recwarn: pytest.WarningsRecorder) -> None:
    with StandIn():
        found = run(domains, method=method, mixed_precision=precision, channels_last=True)
        assert everything_on(found.model) == {DEVICE}
    whole = run(domains, method=method, channels_last=True)
    weights, expected = on_cpu(found.model), on_cpu(whole.model)
    assert all(tensor.isfinite().all() for tensor in weights.values())
    for name in expected:
        torch.testing.assert_close(weights[name], expected[name], rtol=HALF, atol=HALF, msg=name)
    assert any(not torch.equal(weights[name], expected[name]) for name in expected)
    assert not [str(warning.message) for warning in recwarn if "lr_scheduler" in str(warning.message)]


def test_predictions_and_models_are_kept(domains: Path, tmp_path: Path) -> None:
    kept = {"method": "nrc+ancon", "storage": "sparse", "save_predictions": True, "save_epochs": True}
    run(domains, tmp_path / "cpu", **kept)
    with StandIn():
        run(domains, tmp_path / "device", **kept)
    expected, found = (np.load(tmp_path / name / "predictions.npz") for name in ("cpu", "device"))
    assert set(found.files) == set(expected.files) >= {"logits", "features", "votes", "labels"}
    for name in ("logits", "features", "votes"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-2, atol=1e-3)
    for name in ("epoch-000.pth", "epoch-001.pth", "best.pth", "latest.pth"):
        assert (tmp_path / "device" / "checkpoints" / name).is_file()


class Cut(Exception):
    pass


DEVICES: dict[str, Any] = {"cpu": contextlib.nullcontext, "device": StandIn}


@pytest.mark.parametrize(("first", "second"), [("cpu", "device"), ("device", "cpu"), ("device", "device")])
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "nrc+ancon", "search": "cached", "storage": "sparse"},
        {"method": "shot+elr"},
        {"method": "aad+ancon-auto"},
    ],
    ids=lambda settings: settings["method"],
)
def test_a_run_continues_on_another_device(
    domains: Path, tmp_path: Path, settings: dict[str, Any], first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**settings, "epochs": 2}
    with DEVICES[first]():
        cut_off(domains, tmp_path / "cut", monkeypatch, **settings)
    with DEVICES[second]():
        continued = run(domains, tmp_path / "cut", **settings)
    with DEVICES[first]():
        whole = run(domains, **settings)
    same(whole, continued, 0.0 if first == second else ROUNDING)


def test_the_scale_of_fp16_is_part_of_what_continues(
    domains: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"epochs": 2, "mixed_precision": "fp16"}
    with StandIn():
        cut_off(domains, tmp_path / "cut", monkeypatch, **settings)
        state = torch.load(tmp_path / "cut" / "checkpoints" / "state.pth", weights_only=True)
        assert state["snapshot"]["parts"]["scaler"]["scale"] > 1
        same(run(domains, **settings), run(domains, tmp_path / "cut", **settings), 0.0)


def test_a_step_that_fp16_leaves_out_is_none_of_the_schedule(
    domains: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    steps: list[tuple[bool, int]] = []
    step = Adaptation._step

    def with_a_first_gradient_too_large(self: Adaptation, *args: Any) -> Any:
        if not steps:
            self.accelerator.scaler._init_scale = 1e38
        result = step(self, *args)
        if len(steps) == 0:
            self.accelerator.scaler.update(1.0)
        steps.append((self.accelerator.optimizer_step_was_skipped, self.schedule.last_epoch))
        return result

    with StandIn(), monkeypatch.context() as patch:
        patch.setattr(Adaptation, "_step", with_a_first_gradient_too_large)
        run(domains, mixed_precision="fp16", epochs=2)
    assert steps == [(True, 0), (False, 1), (False, 2), (False, 3)]
    assert not [str(warning.message) for warning in recwarn if "lr_scheduler" in str(warning.message)]


def cut_off(domains: Path, log: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """A run that ends after its first epoch."""
    train = Adaptation._train_epoch

    def train_epoch(self: Adaptation, epoch: int) -> Any:
        if epoch == 2:
            raise Cut
        return train(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Adaptation, "_train_epoch", train_epoch)
        with pytest.raises(Cut):
            run(domains, log, **settings)
