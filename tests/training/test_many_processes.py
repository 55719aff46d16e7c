"""Two processes with batches of B do what one process does with batches of 2 B in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.transforms.functional import to_tensor

from tests.domains_on_disk import write_domain
from tests.training import in_processes
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.sampling import EpochSampler
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.training.adapt import Adaptation, AdaptationOptions
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory

WORLD_SIZE, BATCH, EPOCHS, SIDE = 2, 6, 2, 8
IMAGES = 41
"""None of these and of what is adapted on is a multiple of the processes' number, or of their batches."""
SAME = 1e-5

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in ("self-training", "elr", "ancon", "gce+ancon", "nrc+ancon", "shot+ancon")},
    **{name: {"method": name} for name in ("nrc", "aad", "aad+ancon", "shot-im")},
    "nrc, cached": {"method": "nrc", "method_options": {"search": "cached"}},
    "adaptive": {"method": "ancon", "method_options": {"smoothing": "adaptive"}},
    "quantile": {"method": "ancon", "method_options": {"weighting": "quantile", "quantile": 0.5}},
    "soft, paper": {"method": "ancon", "method_options": {"prediction": "soft", "convention": "paper"}},
    "accumulated": {"method": "ancon", "accumulation_steps": 2},
}


class Encoder(nn.Sequential):
    """Without batch-norm, so that an image's features do not depend on its batch."""

    out_features = 6

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 6, 3), nn.Tanh())


class Interleaved(EpochSampler):
    """Orders of many processes in one: step by step, a batch of each."""

    def __init__(self, samplers: list[EpochSampler], batch: int):
        super().__init__(range(0), samplers[0].num_samples, 0, sum(map(len, samplers)))
        self.samplers = samplers
        self.batch = batch

    def __iter__(self) -> Iterator[int]:
        for sampler in self.samplers:
            sampler.epoch = self.epoch
        keys = torch.tensor([list(sampler) for sampler in self.samplers])
        return iter(keys.unflatten(1, (-1, self.batch)).transpose(0, 1).flatten().tolist())


def build(target: Domain, folder: Path, batch_size: int, **options: Any) -> Adaptation:
    torch.manual_seed(0)
    model = Classifier(Encoder(), 3, nn.Linear(6, 5), nn.Linear(5, 3), features_dim=5, finetune=False)
    run = RunDirectory(folder)
    run.begin({})
    few = {"neighbors": 3, "expanded_neighbors": 2, **options.pop("method_options", {})}
    given = AdaptationOptions(
        method_options=few, epochs=EPOCHS, batch_size=batch_size, lr=0.1, adapted="all", workers=0, **options
    )
    return Adaptation(model, target, given, run, to_tensor, to_tensor, progress=Progress(quiet=True))


def in_one_process(target: Domain, folder: Path, **options: Any) -> Adaptation:
    """With the order of many."""
    adaptation = build(target, folder, WORLD_SIZE * BATCH, **options)
    num_samples = len(adaptation.adapted_indices)
    length = num_samples // WORLD_SIZE // (BATCH * adaptation.options.accumulation_steps)
    length *= BATCH * adaptation.options.accumulation_steps
    samplers = [
        EpochSampler(range(rank, num_samples, WORLD_SIZE), num_samples, 0, length, rank) for rank in range(WORLD_SIZE)
    ]
    adaptation.sampler = Interleaved(samplers, BATCH)
    loader = adaptation.train_loader
    images = loader.batches.dataset
    adaptation.train_loader = ImageLoader(images, WORLD_SIZE * BATCH, 0, adaptation.sampler, drop_last=True)
    return adaptation


def outcome(adaptation: Adaptation) -> dict[str, Any]:
    """δ after each step, what is kept of each sample in the end, the parameters, and the metrics."""
    thresholds: list[Tensor] = []
    step = adaptation._step

    def recorded(*args: Any) -> Any:
        result = step(*args)
        thresholds.append(adaptation.method.diagnostics().get("threshold", torch.tensor(0.0)).clone())
        return result

    adaptation._step = recorded
    adaptation()
    regularizer = adaptation.method.regularizer
    positions = torch.tensor(adaptation.shard.positions)
    return {
        "thresholds": torch.stack(thresholds),
        "positions": positions,
        "votes": adaptation.method.votes(positions),
        "averages": None if regularizer is None else regularizer.targets,
        "banks": {name: tensor for name, tensor in adaptation.method.state_dict().items() if ".memory." in f".{name}."},
        "parameters": adaptation.network.state_dict(),
        "metrics": [
            {name: value for name, value in line.items() if name != "images_per_second"} for line in adaptation.metrics
        ],
    }


def every_variant(root: Path, out: Path) -> dict[str, dict[str, Any]]:
    target = open_domain(root, "ImageList", ["dark"])
    make = build if torch.distributed.is_initialized() else None
    return {
        name: outcome(
            make(target, out / name, BATCH, **variant) if make else in_one_process(target, out / name, **variant)
        )
        for name, variant in VARIANTS.items()
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("domain")
    write_domain(root, "dark", IMAGES, seed=1, side=SIDE)
    many, one = tmp_path_factory.mktemp("many"), tmp_path_factory.mktemp("one")
    return every_variant(root, one), in_processes.run(every_variant, WORLD_SIZE, root, many, folder=many)


def close(expected: Tensor, found: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=SAME)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_do_what_one_does_with_twice_the_batch(outcomes, variant: str) -> None:
    one, many = outcomes[0][variant], [outcome[variant] for outcome in outcomes[1]]
    for process in many:
        assert len(process["thresholds"]) == len(one["thresholds"])
        close(one["thresholds"], process["thresholds"])
        for name, parameter in one["parameters"].items():
            close(parameter, process["parameters"][name])
        for name, bank in one["banks"].items():
            close(bank, process["banks"][name])
        assert process["metrics"] == [pytest.approx(line, abs=SAME) for line in one["metrics"]]
    for kept in ("votes", "averages"):
        if one[kept] is not None:
            together = torch.empty_like(one[kept])
            for process in many:
                together[process["positions"]] = process[kept]
            close(one[kept], together)
