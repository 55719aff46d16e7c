"""Whole epochs, with all that is read, trained, scored and stored: ``adapt`` and the usual loop."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

from benchmarks.speed.images import draw_domain, toolkit_images
from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.open import open_domain
from tllib_ancon.data.transforms import Preprocessing, evaluation_transform, train_transform
from tllib_ancon.models.classifier import Classifier, choose_adapted_parameters, shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.image_transforms import Transforms
from tllib_ancon.training.plan import Plan
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import resolve
from tllib_ancon.training.run import RunDirectory
from tllib_ancon.training.source import Source

NUM_CLASSES = 31
SMOOTHING, BETA = 0.3, 0.9
WARMUP = 2
"""Epochs of ``adapt`` that are not counted: the first scores the start model, the second compiles."""


@dataclass(frozen=True)
class Scene:
    """What is trained on what.

    Attributes:
        title: of network and device
        arch: the network
        image_size: side of its images in pixels
        num_images: of the target
        batch_size: B
    """

    title: str
    arch: str
    image_size: int
    num_images: int
    batch_size: int

    @property
    def transforms(self) -> Preprocessing:
        return Preprocessing(image_size=self.image_size)

    def model(self) -> Classifier:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return shot_classifier(create_backbone(self.arch, pretrained=False), NUM_CLASSES)


@dataclass(frozen=True)
class Way:
    """How ``adapt`` is called.

    Attributes:
        name: of its flags, in the table
        labelled: the target has labels, so that every epoch is scored on all of it for the record
        options: fields of :class:`~tllib_ancon.config.adapt.AdaptConfig`
        limits: what is asked of its ratio
    """

    name: str
    labelled: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)


class UsualLoop:
    """AnCon's loop as a research script has it: float32, contiguous, the toolkit's loader, a float32 table of votes,
    numbers read from the device every step, two passes over the test images an epoch. Calling it is one epoch.

    Attributes:
        images: that an epoch learns from
    """

    def __init__(self, scene: Scene, domain: Domain, folder: Path, workers: int):
        model, batch = scene.model(), scene.batch_size
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        choose_adapted_parameters(model, "all-but-head")
        self.optimizer = torch.optim.SGD(model.get_parameters(1e-2), momentum=0.9, weight_decay=1e-3, nesterov=True)
        train, test = (toolkit_images(domain, folder, scene.transforms, augment) for augment in (True, False))
        loading = {"batch_size": batch, "num_workers": workers, "pin_memory": self.device.type == "cuda"}
        self.train_loader = DataLoader(StackDataset(range(len(domain)), train), shuffle=True, drop_last=True, **loading)
        self.test_loader = DataLoader(test, **loading)
        self.images = len(self.train_loader) * batch
        self.votes = torch.zeros(len(domain), model.num_classes, device=self.device)
        self.threshold: float | None = None

    def __call__(self) -> None:
        self.model.train()
        for indices, (images, _) in self.train_loader:
            logits, _ = self.model(images.to(self.device))
            targets = self.targets(indices.to(self.device), logits.detach())
            loss = -(targets * logits.log_softmax(1)).sum(1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
        for _ in range(2):
            self._test()

    def targets(self, indices: Tensor, logits: Tensor) -> Tensor:
        confidence, labels = logits.softmax(1).max(1)
        mean = confidence.mean().item()
        self.threshold = mean if self.threshold is None else BETA * self.threshold + (1 - BETA) * mean
        ensemble = self.votes[indices]
        self.votes[indices, labels] += (confidence >= self.threshold).float()
        return (1 - SMOOTHING) * nn.functional.one_hot(labels, self.model.num_classes) + SMOOTHING * ensemble

    @torch.no_grad()
    def _test(self) -> None:
        self.model.eval()
        for images, labels in self.test_loader:
            predictions = self.model(images.to(self.device)).argmax(1)
            (predictions == labels.to(self.device)).float().mean().item()


def measure(
    root: str | None = None, target: str = "W", workers: int = 2, rounds: int = 4, **_: object
) -> Iterator[Row]:
    """ResNet-50 at 224² with batches of 64 where there is a GPU; else a ResNet-18 at 96² and a MobileNetV2 at 128².

    Args:
        root: Office-31 in TLLib's layout. Default: pictures of its size, drawn at random
        target: domain of Office-31
    """
    scenes = [
        Scene("ResNet-18 at 96², CPU", "resnet18", 96, 192, 32),
        Scene("MobileNetV2 at 128², CPU", "mobilenetv2_100", 128, 192, 32),
    ]
    if torch.cuda.is_available():
        scenes = [Scene("ResNet-50 at 224², GPU", "resnet50", 224, 4096, 64)]
    ways = [
        Way("images/s of adapt with its defaults / the usual loop's", limits={"at_least": 2}),
        Way("the same on a target without labels", labelled=False),
        Way("with labels, --mixed-precision bf16", options={"mixed_precision": "bf16"}),
    ]
    for scene in scenes:
        with tempfile.TemporaryDirectory() as folder:
            domain = open_domain(root, "Office31", [target]) if root else draw_domain(Path(folder), scene.num_images)
            chosen = np.random.default_rng(0).permutation(len(domain))[: scene.num_images]
            yield from compare(scene, ways, domain.subset(chosen), Path(folder), rounds, workers)


def compare(scene: Scene, ways: list[Way], domain: Domain, folder: Path, rounds: int, workers: int) -> list[Row]:
    """Seconds of an epoch, an image that it learns from: ``adapt`` holds some out, and scores these and all."""
    usual = UsualLoop(scene, domain, folder, workers)
    ours = [_adaptation(scene, way, domain, folder, workers) for way in ways]
    epochs = {way.name: partial(_train, our, our.epochs()) for way, our in zip(ways, ours, strict=True)}
    seconds = in_turn({"usual": usual, **epochs}, rounds, WARMUP, wall_clock)
    theirs = [value / usual.images for value in seconds["usual"]]
    rows = [row(f"epoch of the usual loop, {scene.title}", [1 / value for value in theirs], "images/s")]
    for way, our in zip(ways, ours, strict=True):
        images = len(our.loaders[0]) * scene.batch_size
        rows.append(ratio(way.name, theirs, [value / images for value in seconds[way.name]], **way.limits))
    return rows


def _train(adaptation: Adaptation, epochs: Iterator[object]) -> None:
    with devices.using_processor(None):
        next(epochs)
        if adaptation.run is not None:
            adaptation.run.wait()


def _adaptation(scene: Scene, way: Way, domain: Domain, folder: Path, workers: int) -> Adaptation:
    """An adaptation of more epochs than will be measured, stored in a new run directory."""
    model, given = scene.model(), {"epochs": 10**6, "batch_size": scene.batch_size, "workers": workers, "quiet": True}
    requested = AdaptConfig(**given, **way.options)
    options, _ = resolve(requested, facts_of(requested, Source(), model))
    run = RunDirectory(tempfile.mkdtemp(dir=folder))
    run.begin({})
    transforms = Transforms(train_transform(scene.transforms), evaluation_transform(scene.transforms))
    labels = np.zeros(len(domain), dtype=int) if way.labelled else None
    target = replace(domain, classes=numbered(NUM_CLASSES), labels=labels)
    target = inputs.prepared(options, target, transforms)
    plan = Plan(options, requested, Source(), model, target, transforms, Progress(quiet=True), {})
    return Adaptation(plan, run)
