"""CDAN and MDD: two processes with batches of B do what one process does with batches of 2 B in the same order.

They are compared in double precision: the discriminator's batch-norm turns float32's rounding into differences of 1e-5
after a few steps, which could hide a mistake.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from tests.domains_on_disk import write_domain
from tests.training import in_processes
from tests.training.test_many_processes import (
    BATCH,
    IMAGES,
    SIDE,
    WORLD_SIZE,
    Encoder,
    contrasting,
    in_their_order,
    without_speed,
)
from tllib_ancon import toolkit
from tllib_ancon.config import PretrainConfig
from tllib_ancon.data.domains import open_domain
from tllib_ancon.models.backbones import Backbone
from tllib_ancon.models.preprocessing import Preprocessing
from tllib_ancon.self_training import processes
from tllib_ancon.training.adversarial import AdversarialTraining, create_cdan, create_mdd
from tllib_ancon.training.inputs import recorder
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="compares CPUs; set CUDA_VISIBLE_DEVICES= to hide GPUs"
)

EPOCHS, STEPS = 2, 5
SAME = 1e-10
CREATORS = {"cdan": create_cdan, "mdd": create_mdd}
VARIANTS: dict[str, dict[str, Any]] = {
    "cdan": {"method": "cdan"},
    "cdan, entropy": {"method": "cdan", "entropy": True},
    "cdan, randomized": {"method": "cdan", "entropy": True, "randomized": True, "randomized_dim": 12},
    "mdd": {"method": "mdd"},
}


def build(root: Path, log: Path, batch_size: int, plain: bool = True, **settings: Any) -> AdversarialTraining:
    """A training; a plain network has no batch-norm and no dropout, so that an image's outputs are its own."""
    source, target = (open_domain(root, "ImageList", [name]) for name in ("bright", "dark"))
    fixed = {"epochs": EPOCHS, "iters_per_epoch": STEPS, "bottleneck_dim": 5, "lr": 0.1, "lr_gamma": 0.1, "workers": 0}
    config = PretrainConfig(batch_size=batch_size, **{**fixed, **settings})
    torch.manual_seed(0)
    backbone = Backbone(Encoder(), False, Preprocessing.centred(3), pretrained=False)
    model, loss = CREATORS[config.method](toolkit.find(), backbone, 3, config)
    if plain:
        without_batches_and_noise(model)
    run = RunDirectory(log)
    run.begin({})
    transforms = (contrasting, contrasting)
    return AdversarialTraining(
        (model, loss), source, target, config, run, *transforms, recorder(target), Progress(quiet=True)
    )


def without_batches_and_noise(model: nn.Module) -> None:
    for name, module in model.named_children():
        if isinstance(module, nn.BatchNorm1d | nn.Dropout):
            setattr(model, name, nn.Identity())
        without_batches_and_noise(module)


def state(training: AdversarialTraining) -> dict[str, Any]:
    """Of a run that is finished here."""
    training()
    return {
        "model": dict(training.network.state_dict()),
        "loss": dict(training.adversary.state_dict()),
        "optimizer": training.optimizer.state_dict()["state"],
        "reversals": training.reversal.iterations,
        "noise": torch.rand(3),
        "metrics": without_speed(training.metrics),
    }


class CutOff(Progress):
    """Ends a run once an epoch is kept."""

    def line(self, text: str) -> None:
        if text.startswith("source epoch"):
            raise InterruptedError


def resumed(root: Path, log: Path, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A whole run, and one that was cut off after each epoch; with the batch-norm and the dropout of the toolkit."""
    whole = state(build(root, log / "whole", BATCH, plain=False, **settings))
    for _ in range(EPOCHS + 1):
        training = build(root, log / "cut", BATCH, plain=False, **settings)
        training.progress = CutOff(quiet=True)
        with contextlib.suppress(InterruptedError):
            training()
    return whole, state(build(root, log / "cut", BATCH, plain=False, **settings))


def gathered_gradient() -> tuple[Tensor, Tensor]:
    """The rows of all processes, and the gradient of this one's where process r weighs the sum of squares by r + 1."""
    own = torch.tensor([[1.0, 2.0], [3.0, 4.0]]) + 10 * processes.rank()
    own.requires_grad_()
    everyones = processes.gather_with_gradient(own)
    ((processes.rank() + 1) * everyones.pow(2).sum()).backward()  # type: ignore[no-untyped-call]
    assert own.grad is not None
    return everyones.detach(), own.grad


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Where new tensors are float64 and nothing is made float32."""
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def one_of_many(root: Path, out: Path) -> dict[str, Any]:
    with double_precision():
        variants = {name: state(build(root, out / name, BATCH, **settings)) for name, settings in VARIANTS.items()}
    return {
        "variants": variants,
        "resumed": {name: resumed(root, out / f"resumed {name}", method=name) for name in CREATORS},
        "gathered": gathered_gradient(),
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("domains")
    for seed, name in enumerate(("bright", "dark")):
        write_domain(root, name, IMAGES + seed, seed=seed, side=SIDE)
    return root


@pytest.fixture(scope="module")
def many(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("many")
    return in_processes.run(one_of_many, WORLD_SIZE, root, out, folder=out)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_do_what_one_does_with_twice_the_batch(
    root: Path, many: list[dict[str, Any]], variant: str, tmp_path: Path
) -> None:
    with double_precision():
        training = build(root, tmp_path, WORLD_SIZE * BATCH, **VARIANTS[variant])
        training.loaders = [in_their_order(loader, BATCH, STEPS * BATCH) for loader in training.loaders]
        expected = state(training)
    assert expected["model"]["backbone.0.weight"].dtype == torch.float64
    assert len({line["transfer_loss"] for line in expected["metrics"]}) == EPOCHS
    for process in many:
        found = process["variants"][variant]
        for part in ("model", "loss"):
            for name, tensor in expected[part].items():
                torch.testing.assert_close(found[part][name], tensor, rtol=SAME, atol=SAME)
        assert found["reversals"] == expected["reversals"] == EPOCHS * STEPS
        torch.testing.assert_close(found["metrics"], expected["metrics"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", CREATORS)
def test_a_run_in_two_processes_that_is_cut_off_ends_as_if_it_had_not_been(
    many: list[dict[str, Any]], method: str
) -> None:
    from tests.end_to_end.killable import differences  # imports much that the processes need not

    for process in many:
        assert differences(*process["resumed"][method]) == []


def test_all_processes_end_with_one_model_and_one_discriminator_and_with_noise_of_their_own(
    many: list[dict[str, Any]],
) -> None:
    first, second = (process["resumed"]["cdan"][0] for process in many)
    parameters = [name for name in first["model"] if "running" not in name]
    assert all(torch.equal(first["model"][name], second["model"][name]) for name in parameters)
    assert all(torch.equal(first["loss"][name], second["loss"][name]) for name in first["loss"])
    assert not torch.equal(first["noise"], second["noise"])


def test_the_gradient_of_gathered_rows_is_that_of_the_sum_of_all_losses(many: list[dict[str, Any]]) -> None:
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    weight = sum(range(1, WORLD_SIZE + 1))
    for number, process in enumerate(many):
        everyones, gradient = process["gathered"]
        assert torch.equal(everyones, torch.cat([rows + 10 * other for other in range(WORLD_SIZE)]))
        assert torch.equal(gradient, 2 * weight * (rows + 10 * number))
