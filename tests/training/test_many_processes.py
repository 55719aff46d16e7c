"""Two processes with batches of B do what one process does with batches of 2 B in the same order."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import to_tensor

from tests.domains_on_disk import write_domain
from tests.self_training.neighborhoods import few_neighbors
from tests.training import in_processes
from tllib_ancon.config import AdaptConfig, PretrainConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.sampling import EpochSampler
from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import BottleneckClassifier
from tllib_ancon.self_training import processes
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.erm import SourceOnly
from tllib_ancon.training.passes import Predictions, evaluation_loader, predict_domain
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="compares CPUs; set CUDA_VISIBLE_DEVICES= to hide GPUs"
)

WORLD_SIZE, BATCH, EPOCHS, SIDE = 2, 6, 2, 8
IMAGES = 41
SIZES = (1, 2, 5, 9, 12)
SAME = 1e-5
COMMON = re.compile(r"\.(memory|lists|shares|relative_prior)\b")
"""State of a method that is of all samples in every process."""

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"method": name} for name in ("self-training", "elr", "ancon", "gce+ancon", "nrc+ancon", "shot+ancon")},
    "aad": {"method": "aad"},
    "nrc, cached": {"method": "nrc", "options": {"search": "cached"}},
    "ancon-auto": {"method": "ancon-auto"},
    "ancon-auto, estimated prior": {"method": "ancon-auto", "options": {"class_prior": "estimate"}},
    "quantile": {"method": "ancon", "options": {"weighting": "quantile", "quantile": 0.5}},
    "soft, paper": {"method": "ancon", "options": {"prediction": "soft", "convention": "paper"}},
    "accumulated": {"method": "ancon", "accumulation_steps": 2},
}


class Encoder(nn.Sequential):
    """Without batch-norm, so that an image's features do not depend on its batch."""

    out_features = 6

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 6, 3, bias=False), nn.Tanh())


def contrasting(image: Image.Image) -> Tensor:
    """So that an untrained network does not say the same of every image."""
    return 8 * (to_tensor(image) - 0.17)


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
    bottleneck, head = nn.Linear(6, 5, bias=False), nn.Linear(5, 3, bias=False)
    head.weight.data *= 4
    model = BottleneckClassifier(Encoder(), 3, bottleneck, head, features_dim=5, finetune=False)
    run = RunDirectory(folder)
    run.begin({})
    few = {**few_neighbors(options.get("method", "ancon"), 3, 2), **options.pop("options", {})}
    fixed = {"epochs": EPOCHS, "batch_size": batch_size, "lr": 0.1, "workers": 0}
    given = AdaptConfig(options=few, **{**fixed, "adapted": "all", **options})
    return Adaptation(model, target, given, run, contrasting, contrasting, progress=Progress(quiet=True))


def in_one_of_many(target: Domain, folder: Path, **options: Any) -> Adaptation:
    return build(target, folder, BATCH, **options)


def in_the_order_of_many(target: Domain, folder: Path, **options: Any) -> Adaptation:
    """In one process."""
    adaptation = build(target, folder, WORLD_SIZE * BATCH, **options)
    adaptation.train_loader = in_their_order(adaptation.train_loader, BATCH * adaptation.options.accumulation_steps)
    adaptation.sampler = adaptation.train_loader.sampler
    return adaptation


def in_their_order(loader: ImageLoader, a_step: int, length: int | None = None) -> ImageLoader:
    """The same images in the order of many processes, each of which visits whole steps of so many, or ``length``."""
    images = loader.dataset
    size = len(images)
    length = length or size // WORLD_SIZE // a_step * a_step
    samplers = [
        EpochSampler(range(rank, size, WORLD_SIZE), size, images.seed, length, rank) for rank in range(WORLD_SIZE)
    ]
    return ImageLoader(images, WORLD_SIZE * BATCH, 0, Interleaved(samplers, BATCH), drop_last=True)


def outcome(adaptation: Adaptation) -> dict[str, Any]:
    """δ after each step; what the method keeps of each sample and of all, the parameters and the metrics in the end."""
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
    state = adaptation.method.state_dict()
    return {
        "thresholds": torch.stack(thresholds),
        "positions": positions,
        "votes": adaptation.method.votes(positions),
        "averages": None if regularizer is None else regularizer.module.targets,
        "common": {name: state[name] for name in state if COMMON.search(name)},
        "parameters": adaptation.network.state_dict(),
        "metrics": without_speed(adaptation.metrics),
    }


def without_speed(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "images_per_second"} for line in metrics]


def every_variant(target: Domain, folder: Path, build: Callable[..., Adaptation]) -> dict[str, dict[str, Any]]:
    return {name: outcome(build(target, folder / name, **variant)) for name, variant in VARIANTS.items()}


def resumed(target: Domain, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A whole run, and one that was cut off after each epoch."""
    options = {"method": "nrc+ancon", "dropout": True, "adapted": "all-but-head"}
    whole = state(in_one_of_many(target, folder / "whole", **options))
    cut = folder / "cut"
    for _ in range(EPOCHS + 1):
        adaptation = in_one_of_many(target, cut, **options)
        adaptation.progress = CutOff()
        with contextlib.suppress(InterruptedError):
            adaptation()
    return whole, state(in_one_of_many(target, cut, **options))


class CutOff(Progress):
    """Ends a run once an epoch is kept."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def line(self, text: str) -> None:
        if text.startswith("epoch"):
            raise InterruptedError


def state(adaptation: Adaptation) -> dict[str, Any]:
    """Of a run that is finished here: what is different in each process, and what is not."""
    adaptation()
    return {
        "method": adaptation.method.state_dict(),
        "model": adaptation.network.state_dict(),
        "optimizer": adaptation.optimizer.state_dict()["state"],
        "noise": torch.rand(3),
        "metrics": without_speed(adaptation.metrics),
    }


def source_only(source: Domain, folder: Path, batch_size: int) -> SourceOnly:
    torch.manual_seed(0)
    model = BottleneckClassifier(Encoder(), 3, nn.Linear(6, 5), nn.Linear(5, 3), features_dim=5, finetune=False)
    run = RunDirectory(folder)
    run.begin({})
    options = PretrainConfig(epochs=EPOCHS, batch_size=batch_size, lr=0.1, workers=0)
    return SourceOnly(model, source, options, run, contrasting, contrasting, Progress(quiet=True))


def trained(training: SourceOnly) -> dict[str, Any]:
    training()
    return {"parameters": training.network.state_dict(), "metrics": without_speed(training.metrics)}


def evaluated(target: Domain, sizes: Iterable[int]) -> dict[int, Predictions]:
    """Predictions on domains of these sizes, of a model that differs between processes in its batch-norm."""
    torch.manual_seed(0)
    model = BottleneckClassifier(Encoder(), 3, nn.BatchNorm1d(6), nn.Linear(6, 3), features_dim=6)
    model.bottleneck.running_mean += processes.rank()
    loaders = {size: evaluation_loader(target.subset(range(size)), to_tensor, 4, 0) for size in sizes}
    cpu = torch.device("cpu")
    return {size: predict_domain(model, loader, cpu, loader.num_images) for size, loader in loaders.items()}


def one_of_many(root: Path, out: Path) -> dict[str, Any]:
    target = open_domain(root, "ImageList", ["dark"])
    return {
        "variants": every_variant(target, out, in_one_of_many),
        "resumed": resumed(target, out),
        "source": trained(source_only(target, out / "source", BATCH)),
        "evaluated": evaluated(target, SIZES),
    }


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Domain:
    root = tmp_path_factory.mktemp("domain")
    write_domain(root, "dark", IMAGES, seed=1, side=SIDE)
    return open_domain(root, "ImageList", ["dark"])


@pytest.fixture(scope="module")
def one(target: Domain, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return every_variant(target, tmp_path_factory.mktemp("one"), in_the_order_of_many)


@pytest.fixture(scope="module")
def many(target: Domain, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    root, out = Path(target.paths[0]).parents[2], tmp_path_factory.mktemp("many")
    return in_processes.run(one_of_many, WORLD_SIZE, root, out, folder=out)


def close(expected: Tensor, found: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=SAME)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_do_what_one_does_with_twice_the_batch(one, many, variant: str) -> None:
    expected, found = one[variant], [process["variants"][variant] for process in many]
    for process in found:
        close(expected["thresholds"], process["thresholds"])
        for part in ("parameters", "common"):
            for name, tensor in expected[part].items():
                close(tensor, process[part][name])
        assert process["metrics"] == [pytest.approx(line, abs=SAME) for line in expected["metrics"]]
    for kept in ("votes", "averages"):
        if expected[kept] is not None:
            together = torch.empty_like(expected[kept])
            for process in found:
                together[process["positions"]] = process[kept]
            close(expected[kept], together)
            assert (together.sum(0) > 0).sum() > 1


def test_a_source_model_too(target, many, tmp_path: Path) -> None:
    training = source_only(target, tmp_path, WORLD_SIZE * BATCH)
    training.loaders = [in_their_order(training.loaders[0], BATCH)]
    expected = trained(training)
    for process in many:
        for name, parameter in expected["parameters"].items():
            close(parameter, process["source"]["parameters"][name])
        assert process["source"]["metrics"] == [pytest.approx(line, abs=SAME) for line in expected["metrics"]]


def test_a_run_in_two_processes_that_is_cut_off_ends_as_if_it_had_not_been(many) -> None:
    from tests.end_to_end.killable import differences  # imports much that the processes need not

    for process in many:
        whole, cut = process["resumed"]
        assert differences(whole, cut) == []
    assert differences(many[0]["resumed"][0]["method"], many[1]["resumed"][0]["method"])


def test_each_process_gets_the_predictions_of_the_first_ones_model_on_every_image_in_order(target, many) -> None:
    expected = evaluated(target, SIZES)
    for process in many:
        for size, predictions in process["evaluated"].items():
            assert predictions.indices.tolist() == list(range(size))
            for found, wanted in zip(predictions, expected[size], strict=True):
                close(wanted, found)


def test_batch_norm_over_processes_needs_gpus(target, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`sync_batch_norm` needs GPUs"):
        build(target, tmp_path, BATCH, sync_batch_norm=True)


def test_a_step_of_several_batches_is_that_of_one_large_batch(target, tmp_path: Path) -> None:
    large = build(target, tmp_path / "large", 3 * BATCH, method="elr")
    small = build(target, tmp_path / "small", BATCH, method="elr", accumulation_steps=3)
    found = outcome(small)["parameters"]
    for name, parameter in outcome(large)["parameters"].items():
        close(parameter, found[name])
    for adaptation in (large, small):
        assert adaptation.schedule.last_epoch == EPOCHS * (37 // (3 * BATCH))


def test_a_step_of_several_batches_needs_as_many(target, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"37 images to adapt on are fewer than 7 batches of 6; .*batch_size"):
        build(target, tmp_path, BATCH, accumulation_steps=7)
    with pytest.raises(UserError, match="`accumulation_steps` must be at least 1"):
        build(target, tmp_path, BATCH, accumulation_steps=0)
