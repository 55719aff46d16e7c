"""Whole epochs, with all that is read, trained, scored and stored: ``adapt`` and the usual loop."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, StackDataset

from benchmarks.speed.images import draw_domain, toolkit_images
from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.transforms import Preprocessing, evaluation_transform, train_transform
from tllib_ancon.models.classifier import Classifier, shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.image_transforms import Transforms
from tllib_ancon.training.learning import choose_adapted_parameters
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


def measure(workers: int = 2, rounds: int = 4, **_: object) -> Iterator[Row]:
    """ResNet-50 at 224² with batches of 64 where there is a GPU; else a ResNet-18 at 96² and a MobileNetV2 at 128²."""
    scenes = [
        Scene("ResNet-18 at 96², CPU", "resnet18", 96, 192, 32),
        Scene("MobileNetV2 at 128², CPU", "mobilenetv2_100", 128, 192, 32),
    ]
    if torch.cuda.is_available():
        scenes = [Scene("ResNet-50 at 224², GPU", "resnet50", 224, 4096, 64)]
    for scene in scenes:
        with tempfile.TemporaryDirectory() as folder:
            domain = draw_domain(Path(folder), scene.num_images)
            yield from compare(scene, domain, Path(folder), rounds, workers)


def compare(scene: Scene, domain: Domain, folder: Path, rounds: int, workers: int) -> list[Row]:
    """Images/s that learn: ``adapt`` holds some out, and scores these and all."""
    usual = UsualLoop(scene, domain, folder, workers)
    adaptation = _adaptation(scene, domain, folder, workers)
    epochs = {"usual": usual, "adapt": partial(_train, adaptation, adaptation.epochs())}
    seconds = in_turn(epochs, rounds, WARMUP, wall_clock)
    speeds_of_usual = [usual.images / value for value in seconds["usual"]]
    images = len(adaptation.loaders[0]) * scene.batch_size
    speeds_of_adapt = [images / value for value in seconds["adapt"]]
    return [
        row(f"epoch of the usual loop, {scene.title}", speeds_of_usual, "images/s"),
        ratio("images/s of adapt with its defaults / the usual loop's", speeds_of_adapt, speeds_of_usual),
    ]


def _train(adaptation: Adaptation, epochs: Iterator[object]) -> None:
    with devices.using_processor(None):
        next(epochs)
        if adaptation.run is not None:
            adaptation.run.wait()


def _adaptation(scene: Scene, domain: Domain, folder: Path, workers: int) -> Adaptation:
    """An adaptation of more epochs than will be measured, stored in a new run directory."""
    model = scene.model()
    requested = AdaptConfig(epochs=10**6, batch_size=scene.batch_size, workers=workers, quiet=True)
    options, _ = resolve(requested, facts_of(requested, Source(), model))
    run = RunDirectory(tempfile.mkdtemp(dir=folder))
    run.begin({})
    transforms = Transforms(train_transform(scene.transforms), evaluation_transform(scene.transforms))
    labelled = replace(domain, classes=numbered(NUM_CLASSES), labels=np.zeros(len(domain), dtype=int))
    target = inputs.with_cache(options, labelled, transforms)
    plan = Plan(options, requested, Source(), model, target, transforms, Progress(quiet=True), {})
    return Adaptation(plan, run)
