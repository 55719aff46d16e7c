"""Whole runs of each kind of method on the stand-in for a GPU, indices on the CPU as the loader gives them.

Each run scores the source model, takes steps (forward, backward, optimiser) and scores and keeps the adapted model. It
ends where the same run on the CPU ends, up to rounding: the devices differ in which of PyTorch's and of this package's
ways they take.
"""

import pytest
import torch
from torch import nn

import tllib_ancon
from tests.support.domains_on_disk import write_domain
from tests.support.stand_in import CPU, StandIn, device_of
from tllib_ancon.training.adapt import adapt

pytestmark = pytest.mark.usefixtures("no_gpu")

CLASSES = 3
SIDE = 8
IMAGES = 14
ROUNDING = 1e-4
HALF = 0.05
FIXED = {
    "data": "ImageList", "target": ("dark",), "image_size": SIDE, "train_resizing": "res.",
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


def run(domains, **settings):
    torch.manual_seed(0)
    given = {**FIXED, "root": str(domains), "norm_mean": (0.4,) * 3, "norm_std": (0.2,) * 3}
    return adapt(Network(), **{**given, **settings})


def state_on_cpu(result):
    return {name: tensor.cpu() for name, tensor in result.model.state_dict().items()}


def same(one, other):
    torch.testing.assert_close(state_on_cpu(other), state_on_cpu(one), rtol=ROUNDING, atol=ROUNDING)
    for line in (*one.metrics, *other.metrics):
        line.pop("images_per_second", None)
    torch.testing.assert_close(other.metrics, one.metrics, rtol=ROUNDING, atol=ROUNDING)


def on_device(domains, **settings):
    with StandIn():
        found = run(domains, **settings)
    assert {device_of(tensor) for tensor in found.model.state_dict().values()} == {CPU}  # where the caller's model lay
    return found


NRC = {"method": "nrc+ancon"}
RUNS = {
    **{method: {"method": method} for method in ("ancon-auto", "nrc+elr", "shot+ancon", "eta", "adabn")},
    "dropout": {**NRC, "mc_dropout": 0.5, "adapted": "norm-affine"},
    "corr_c": {**NRC, "criterion": "corr_c", "hold_out": 0.2, "adapted": "all"},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_where_that_on_the_cpu_ends(domains, name):
    same(run(domains, **RUNS[name]), on_device(domains, **RUNS[name]))


@pytest.mark.parametrize(("method", "precision"), [("gce+ancon", "fp16"), ("nrc+ancon-auto", "bf16")])
def test_a_run_in_half_precision_ends_near_that_in_full(domains, method, precision):
    found = state_on_cpu(on_device(domains, method=method, mixed_precision=precision))
    expected = state_on_cpu(run(domains, method=method))
    torch.testing.assert_close(found, expected, rtol=HALF, atol=HALF)
    assert any(not torch.equal(found[name], expected[name]) for name in expected)


class FirstGradientTooLarge(tllib_ancon.Callback):
    """How many steps the schedule has counted after each step, of which fp16 leaves out the first."""

    def __init__(self):
        self.steps = []

    def begin_epoch(self, trainer):
        if not self.steps:
            trainer.scaler.load_state_dict({**trainer.scaler.state_dict(), "scale": 1e38})

    def after_step(self, trainer):
        if not self.steps:
            trainer.scaler.update(1.0)
        self.steps.append(trainer.schedule.last_epoch)


def test_a_step_that_fp16_leaves_out_is_none_of_the_schedule(domains):
    recorder = FirstGradientTooLarge()
    on_device(domains, mixed_precision="fp16", epochs=2, callbacks=[recorder])
    assert recorder.steps == [0, 1, 2, 3]
