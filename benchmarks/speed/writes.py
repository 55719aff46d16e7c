"""What the files of an epoch cost: written before the next epoch begins, written while it is trained, or not at all."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.speed.epochs import NUM_CLASSES, Scene, Way, adaptation
from benchmarks.speed.images import draw_domain
from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon.data.domain import Domain
from tllib_ancon.models.classifier import Classifier, shot_classifier
from tllib_ancon.training.run_directory import Run, RunDirectory
from tllib_ancon.training.run_in_memory import RunInMemory

Training = tuple[Run, Iterator[dict[str, Any]]]
"""A run directory and the epochs that are kept there."""

EPOCHS = 3
"""Of a round; the files of the last one are waited for."""


class WrittenAtOnce(RunDirectory):
    """Writes an epoch before the next one begins."""

    def save_epoch(self, snapshot: Mapping[str, Any], metrics: list[dict[str, Any]], selected: bool) -> None:
        super().save_epoch(snapshot, metrics, selected)
        self.wait()


class Waiting(nn.Module):
    """A backbone whose pass takes 50 ms in which the processor waits, as for a GPU.

    An epoch's files take 180 MB, as those of a ResNet-18.
    """

    others: Tensor

    out_features = 64

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 8 * 8, self.out_features)
        self.register_buffer("others", torch.zeros(15_000_000))

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(0.05)
        pooled = nn.functional.adaptive_avg_pool2d(images, 8).flatten(1)
        features: Tensor = self.layer(pooled)
        return features


@dataclass(frozen=True)
class Beside(Scene):
    """What is trained on a device that this machine does not have."""

    def model(self) -> Classifier:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return shot_classifier(Waiting(), NUM_CLASSES, pool_layer=nn.Identity())


def measure(rounds: int = 5, workers: int = 0) -> list[Row]:
    """A small target of 256 images, decoded before: ResNet-50 at 224² where there is a GPU; else ResNet-18 at 32² on
    the processor, which then trains and writes, and a network for which the processor waits."""
    if torch.cuda.is_available():
        scenes = [Scene("ResNet-50 at 224², GPU", "resnet50", 224, 256, 64)]
    else:
        scenes = [
            Beside("a network on a device of its own", "", 32, 256, 32),
            Scene("ResNet-18 at 32², CPU", "resnet18", 32, 64, 32),
        ]
    with tempfile.TemporaryDirectory() as name:
        return [row for scene in scenes for row in compare(scene, Path(name), rounds, workers)]


def compare(scene: Scene, folder: Path, rounds: int, workers: int) -> list[Row]:
    """Seconds of an epoch; all ways in turn."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    domain = draw_domain(folder, scene.num_images)
    ways: dict[str, Callable[[Path], Run]] = {
        "at once": WrittenAtOnce,
        "meanwhile": RunDirectory,
        "never": lambda path: RunInMemory(),
    }
    candidates = {name: partial(_train, _begin(scene, domain, folder, workers, place)) for name, place in ways.items()}
    seconds = {
        name: [value / EPOCHS for value in values]
        for name, values in in_turn(candidates, rounds, clock=wall_clock).items()
    }
    return [
        row(f"epoch, its files written before the next: {scene.title}", seconds["at once"], "s"),
        ratio("  / with its files written while the next is trained", seconds["at once"], seconds["meanwhile"]),
        ratio("  / without files", seconds["at once"], seconds["never"]),
    ]


def _begin(scene: Scene, domain: Domain, folder: Path, workers: int, place: Callable[[Path], Run]) -> Training:
    run = place(Path(tempfile.mkdtemp(dir=folder)))
    run.begin({})
    return run, adaptation(scene, Way("", fast_images=True), domain, folder, workers, run).epochs()


def _train(training: Training) -> None:
    run, epochs = training
    for _ in islice(epochs, EPOCHS):
        pass
    run.wait()
