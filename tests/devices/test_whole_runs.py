"""Whole runs of every method and option on the stand-in for a GPU, indices on the CPU as the loader gives them.

Each run scores the source model, takes steps (forward, backward, optimiser) and scores and keeps the adapted model. It
ends where the same run on the CPU ends, up to rounding: the devices differ in which of PyTorch's and of this package's
ways they take.
"""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

from tests.devices.stand_in import CPU, DEVICE, StandIn, device_of
from tests.domains_on_disk import write_domain
from tests.end_to_end.cutting import counting
from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import choices_of
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.runs.state import copy_to_cpu
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training import optimizer, trainer
from tllib_ancon.training.adapt import adapt
from tllib_ancon.training.predict import predict
from tllib_ancon.training.pretrain import pretrain
from tllib_ancon.training.trainer import Trainer

CLASSES = 3
SIDE = 8
IMAGES = 14
ROUNDING = 1e-4
HALF = 5e-2
"""Of float32; where images are interpolated elsewhere, two of 255 levels; of half precision."""
FIXED = {
    "data": "ImageList", "target": ("dark",), "image_size": SIDE, "resize_size": SIDE, "train_resizing": "res.",
    "val_resizing": "res.", "epochs": 1, "batch_size": 6, "workers": 0, "quiet": True,
    "mixed_precision": "no",
}  # fmt: skip


class Network(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Dropout(0.1), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES),
        )  # fmt: skip


@pytest.fixture(scope="module")
def domains(tmp_path_factory):
    root = tmp_path_factory.mktemp("domains")
    for seed, name in enumerate(("dark", "bright")):
        write_domain(root, name, IMAGES, seed=seed, side=SIDE)
    return root


def run(domains, log=None, **settings):
    torch.manual_seed(0)
    given = {**FIXED, "root": str(domains), "norm_mean": (0.4,) * 3, "norm_std": (0.2,) * 3}
    given |= few_neighbors(settings.get("method", "ancon"), 2, 2)
    if log is not None:
        given["log"] = str(log)
    return adapt(Network(), **{**given, **settings})


def state_on_cpu(result):
    return {name: tensor.cpu() for name, tensor in result.model.state_dict().items()}


def same(one, other, tolerance=ROUNDING):
    torch.testing.assert_close(state_on_cpu(other), state_on_cpu(one), rtol=tolerance, atol=tolerance)
    for line in (*one.metrics, *other.metrics):
        line.pop("images_per_second", None)
    torch.testing.assert_close(other.metrics, one.metrics, rtol=tolerance, atol=tolerance)


def on_device(domains, **settings):
    with StandIn():
        found = run(domains, **settings)
    assert {device_of(tensor) for tensor in found.model.state_dict().values()} == {CPU}  # where the caller's model lay
    return found


def choices():
    """Each value of an option that is no number with the first method that takes it."""
    found = {}
    for method in methods.names():
        for option, field in methods.settings(method).items():
            for value in choices_of(field) or ((True, False) if field.annotation is bool else ()):
                with contextlib.suppress(UserError):
                    methods.all_options(method, {option: value})
                    found.setdefault((option, value), method)
    runs = {}
    for (option, value), method in found.items():
        runs[f"{method} {option}={value}"] = {"method": method, option: value}
    return runs


NRC = {"method": "nrc+ancon"}
RUNS = {
    **{method: {"method": method} for method in methods.names()},
    **choices(),
    "dropout": {**NRC, "confidence": "mc-dropout"},
    "shifted": {"padding": 2},
    "network in training mode": {**NRC, "dropout": True},
    "norm-affine": {**NRC, "adapted": "norm-affine", "criterion": "corr_c", "deterministic": True},
    "corr_c": {**NRC, "criterion": "corr_c", "hold_out": 0.2, "adapted": "all"},
    "nothing held out": {**NRC, "hold_out": 0.0},
}


@pytest.mark.parametrize("name", RUNS)
def test_every_method_option_and_way_to_train(domains, name):
    same(run(domains, **RUNS[name]), on_device(domains, **RUNS[name]), ROUNDING)


@pytest.mark.parametrize(
    ("method", "precision"),
    [("gce+ancon", "fp16"), ("nrc+ancon-auto", "bf16"), ("shot+elr", "fp16"), ("aad+ancon", "bf16")],
)
def test_autocast(domains, method, precision, monkeypatch, recwarn):
    monkeypatch.setattr(trainer, "MANY_CONVOLUTIONS", 0)
    found = state_on_cpu(on_device(domains, method=method, mixed_precision=precision))
    expected = state_on_cpu(run(domains, method=method))
    assert all(tensor.isfinite().all() for tensor in found.values())
    torch.testing.assert_close(found, expected, rtol=HALF, atol=HALF)
    assert any(not torch.equal(found[name], expected[name]) for name in expected)
    assert not [str(warning.message) for warning in recwarn if "lr_scheduler" in str(warning.message)]


def test_predictions_and_models_are_kept(domains, tmp_path):
    kept = {"method": "nrc+ancon", "save_predictions": True}
    run(domains, tmp_path / "cpu", **kept)
    on_device(domains, log=tmp_path / "device", **kept)
    expected, found = (np.load(tmp_path / name / "predictions.npz") for name in ("cpu", "device"))
    assert set(found.files) == set(expected.files) >= {"logits", "features", "votes", "labels"}
    for name in ("logits", "features", "votes"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-2, atol=1e-3)
    for name in ("best.pth", "latest.pth"):
        assert (tmp_path / "device" / "checkpoints" / name).is_file()


DEVICES = {"cpu": contextlib.nullcontext, "device": StandIn}


@pytest.mark.parametrize(
    ("first", "second", "settings"),
    [
        ("cpu", "device", {"method": "nrc+ancon"}),
        ("device", "cpu", {"method": "shot+elr"}),
        ("device", "cpu", {"method": "nrc+ancon"}),
        ("device", "device", {"method": "aad+ancon-auto"}),
        ("device", "device", {"method": "ancon", "mixed_precision": "fp16"}),
    ],
)
def test_a_run_continues_on_another_device(domains, tmp_path, first, second, settings, monkeypatch):
    settings = {**settings, "epochs": 2}
    with DEVICES[first](), monkeypatch.context() as patch:
        counting(patch, cut=2)
        with pytest.raises(KeyboardInterrupt):
            run(domains, tmp_path / "cut", **settings)
    if "mixed_precision" in settings:
        state = torch.load(tmp_path / "cut" / "checkpoints" / "state.pth", weights_only=True)
        assert state["snapshot"]["parts"]["scaler"]["scale"] > 1
    with DEVICES[second]():
        continued = run(domains, tmp_path / "cut", **settings)
    with DEVICES[first]():
        same(run(domains, **settings), continued, 0.0 if first == second else ROUNDING)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_fp16_leaves_out_is_none_of_the_schedule(domains, fused, monkeypatch, recwarn):
    steps = []
    step = Trainer._learn

    def with_a_first_gradient_too_large(self, *args):
        if not steps:
            self.accelerator.scaler._init_scale = 1e38
        before = copy_to_cpu(self.network.state_dict())
        result = step(self, *args)
        if len(steps) == 0:
            self.accelerator.scaler.update(1.0)
        was_skipped = torch.equal(before["0.weight"], self.network.state_dict()["0.weight"].cpu())
        steps.append((was_skipped, self.schedule.last_epoch))
        return result

    monkeypatch.setattr(Trainer, "_learn", with_a_first_gradient_too_large)
    monkeypatch.setattr(optimizer, "MANY_WEIGHTS", 0 if fused else 10**6)
    on_device(domains, mixed_precision="fp16", epochs=2)
    assert steps == [(True, 0), (False, 1), (False, 2), (False, 3)]
    assert not [str(warning.message) for warning in recwarn if "lr_scheduler" in str(warning.message)]


TRAININGS = {
    "erm": {"label_smoothing": 0.1},
    "belief matching": {"loss": "belief-matching"},
    "cdan": {"method": "cdan"},
    "cdan, randomized, entropy": {"method": "cdan", "randomized": True, "randomized_dim": 16, "entropy": True},
    "mdd": {"method": "mdd"},
    **{
        f"{method} {p}": {"method": method, "mixed_precision": p}
        for method in ("cdan", "mdd")
        for p in ("fp16", "bf16")
    },
}


def train(domains, log, **settings):
    network = {"arch": "small_cnn", "scratch": True, "bottleneck_dim": 8, "image_size": 16, "resize_size": 16}
    more = {"root": str(domains), "source": ("bright",), "log": str(log), "iters_per_epoch": 3, "batch_size": 4}
    result = pretrain(PretrainConfig(**{**FIXED, "no_hflip": True, **network, **more, **settings}))
    return load_state_dict(log / "checkpoints" / result["checkpoint"])


@pytest.mark.parametrize("name", TRAININGS)
def test_source_trainings_and_predictions(domains, tmp_path, name):
    with StandIn():
        found = train(domains, tmp_path / "device", **TRAININGS[name])
    assert all(tensor.isfinite().all() for tensor in found.values())
    if "mixed_precision" not in TRAININGS[name]:
        expected = train(domains, tmp_path / "cpu", **TRAININGS[name])
        torch.testing.assert_close(dict(found), dict(expected), rtol=1e-3, atol=1e-3)
        with StandIn():
            predicted = predict(tmp_path / "cpu", domains / "dark").probabilities
        np.testing.assert_allclose(predicted, predict(tmp_path / "cpu", domains / "dark").probabilities, atol=1e-5)


@pytest.mark.parametrize("method", methods.names())
def test_steps_with_indices_on_the_device(method):
    """As a training loop of one's own gives them."""
    samples = 20
    classes = 12
    width = 5
    steps = 12

    def losses(device):
        torch.manual_seed(0)
        options = few_neighbors(method, 3, 2)
        sizes = {"num_samples": samples, "num_classes": classes, "feature_dim": width}
        made = methods.create(method, **sizes, total_steps=steps, **options).to(device)
        features = torch.randn(samples, width).to(device)
        made.begin_epoch(0, torch.arange(samples), features, torch.randn(20, 12).to(device))
        values = []
        gradients = []
        for _ in range(steps):
            indices = torch.randperm(samples)[:8].to(device)
            features = torch.randn(8, width).to(device)
            logits = (4 * torch.randn(8, classes)).to(device).requires_grad_()
            loss = made(indices, logits, features)
            loss.backward()
            values.append(loss.detach().cpu())
            gradients.append(logits.grad.cpu())
        return values, gradients

    expected = losses(CPU)
    with StandIn():
        found = losses(DEVICE)
    torch.testing.assert_close(found, expected)
