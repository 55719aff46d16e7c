"""Images a second of whole epochs, with all that is read, trained, scored and kept: ``adapt`` and the usual loop."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.images import cached, draw_domain
from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from benchmarks.speed.usual_loop import UsualLoop
from tllib_ancon import evaluation
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.device_augmentation import device_augmentation
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import Classifier, shot_classifier
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.passes import Predictions
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import Run, RunDirectory

NUM_CLASSES = 31
WARMUP = 2
"""Epochs of ``adapt`` that are not counted: the first scores the start model, the second compiles."""


@dataclass(frozen=True)
class Scene:
    """What is trained on what.

    Attributes:
        title: of network and device
        arch: the network
        image_size: side of its images in pixels
        num_images: of the target, drawn, 256² pixels as JPEG files
        batch_size: B
    """

    title: str
    arch: str
    image_size: int
    num_images: int
    batch_size: int

    @property
    def transforms(self) -> TransformOptions:
        return TransformOptions(image_size=self.image_size)

    def model(self) -> Classifier:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            backbone = create_backbone(self.arch, pretrained=False)
            return shot_classifier(backbone.network, NUM_CLASSES, pool_layer=backbone.pool_layer())


@dataclass(frozen=True)
class Way:
    """How ``adapt`` is called.

    Attributes:
        name: of its flags, in the table
        fast_images: ``--cache --device-augmentation``
        options: fields of :class:`~tllib_ancon.config.AdaptConfig`
        limits: what is asked of its ratio
    """

    name: str
    fast_images: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)


def measure(rounds: int = 4, workers: int = 2) -> list[Row]:
    """ResNet-50 at 224² with batches of 64 where there is a GPU; else ResNet-18 at 96²."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        scene = Scene("ResNet-50 at 224², GPU", "resnet50", 224, 4096, 64)
    else:
        scene = Scene("ResNet-18 at 96², CPU", "resnet18", 96, 192, 32)
    return compare(scene, _ways(on_gpu), rounds, workers)


def _ways(on_gpu: bool) -> list[Way]:
    layout = {"channels_last": True, "fused": True}
    half = {**layout, "mixed_precision": "bf16", "compile": on_gpu}
    return [
        Way("images/s of adapt / the usual loop's"),
        Way("the same with --cache --device-augmentation --channels-last --fused", True, layout),
        Way(f"and --mixed-precision bf16{' --compile' * on_gpu}", True, half, {"at_least": 3} if on_gpu else {}),
    ]


def compare(scene: Scene, ways: list[Way], rounds: int, workers: int) -> list[Row]:
    """Seconds of an epoch, an image that it learns from: ``adapt`` holds some out, and scores these and all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        domain = draw_domain(folder, scene.num_images)
        usual = UsualLoop(scene.model(), domain, folder, scene.transforms, scene.batch_size, workers)
        ours = [adaptation(scene, way, domain, folder, workers) for way in ways]
        epochs = {way.name: partial(next, our.epochs()) for way, our in zip(ways, ours, strict=True)}
        seconds = in_turn({"usual": usual, **epochs}, rounds, WARMUP, wall_clock)
    theirs = [value / usual.images for value in seconds["usual"]]
    rows = [row(f"epoch of the usual loop, {scene.title}", [1 / value for value in theirs], "images/s")]
    for way, our in zip(ways, ours, strict=True):
        images = len(our.train_loader) * scene.batch_size
        rows.append(ratio(way.name, theirs, [value / images for value in seconds[way.name]], **way.limits))
    return rows


def adaptation(
    scene: Scene, way: Way, domain: Domain, folder: Path, workers: int, run: Run | None = None
) -> Adaptation:
    """An adaptation of more epochs than will be measured, kept in a new run directory, or in ``run``."""
    options = AdaptConfig(epochs=10**6, batch_size=scene.batch_size, workers=workers, **way.options)
    if run is None:
        run = RunDirectory(Path(tempfile.mkdtemp(dir=folder)))
        run.begin({})
    train = (device_augmentation if way.fast_images else train_transform)(scene.transforms)
    evaluation = evaluation_transform(scene.transforms)
    if way.fast_images:
        domain = cached(domain, [train, evaluation], folder, workers)
    progress = Progress(quiet=True)
    return Adaptation(scene.model(), domain, options, run, train, evaluation, _score, progress=progress)


def _score(predictions: Predictions) -> dict[str, Any]:
    return evaluation.summarize(predictions.logits.cpu(), torch.zeros_like(predictions.indices), NUM_CLASSES)
