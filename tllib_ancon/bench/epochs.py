"""Images a second of whole epochs, with all that is read, trained, scored and kept: this package against the loop as it
is usually written."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tllib_ancon import evaluation
from tllib_ancon.bench.images import draw_domain, toolkit_images
from tllib_ancon.bench.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon.data.cache import cached_images
from tllib_ancon.data.device_augmentation import device_augmentation
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform, train_transform
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import Classifier, shot_classifier
from tllib_ancon.models.parameters import choose_adapted_parameters
from tllib_ancon.training.adapt import Adaptation, AdaptationOptions
from tllib_ancon.training.passes import Predictions
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.run_directory import RunDirectory

NUM_CLASSES = 31
SMOOTHING, BETA = 0.3, 0.9


@dataclass(frozen=True)
class Scene:
    """What is trained on what.

    Attributes:
        arch: the network
        image_size: side of its images in pixels
        num_images: of the target, drawn, 256² pixels as JPEG files
        batch_size: B
        compile: also with ``--compile``
        at_least: the ratio that is asked for
    """

    arch: str
    image_size: int
    num_images: int
    batch_size: int
    compile: bool = False
    at_least: float | None = None


def measure(rounds: int = 4, workers: int = 2) -> list[Row]:
    """ResNet-50 at 224² with batches of 64 where there is a GPU; else ResNet-18 at 96²."""
    if torch.cuda.is_available():
        return _compare(Scene("resnet50", 224, 4096, 64, compile=True, at_least=3), rounds, workers)
    return _compare(Scene("resnet18", 96, 192, 32), rounds, workers)


def _compare(scene: Scene, rounds: int, workers: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        domain = draw_domain(Path(folder), scene.num_images)
        usual = UsualLoop(scene, domain, Path(folder), workers)
        ways = {flags: _adaptation(scene, domain, Path(folder), workers, flags) for flags in _flags(scene)}
        epochs = {flags: partial(next, way.epochs()) for flags, way in ways.items()}
        # of ours, the first scores the start model and the second compiles
        seconds = in_turn({"usual": usual, **epochs}, rounds, warmup=2, clock=wall_clock)
    title = f"{scene.arch} at {scene.image_size}², {'GPU' if torch.cuda.is_available() else 'CPU'}"
    images = scene.batch_size * len(usual.train_loader)
    rows = [row(f"epoch of the usual loop, {title}", [images / value for value in seconds["usual"]], "images/s")]
    for flags, way in ways.items():
        share = scene.batch_size * len(way.train_loader) / images
        limit = {"at_least": scene.at_least} if scene.at_least and flags == list(ways)[-1] else {}
        name = f"images/s of adapt {flags} / the usual loop's".replace("  ", " ")
        rows.append(ratio(name, [share * value for value in seconds["usual"]], seconds[flags], **limit))
    return rows


def _flags(scene: Scene) -> list[str]:
    fast = "--cache --device-augmentation --channels-last --fused"
    return ["", fast, f"{fast} --mixed-precision bf16{' --compile' * scene.compile}"]


def _adaptation(scene: Scene, domain: Domain, folder: Path, workers: int, flags: str) -> Adaptation:
    """The adaptation that the command makes with these flags; it ends after more epochs than are measured."""
    transforms = TransformOptions(image_size=scene.image_size)
    train = (device_augmentation if "--device-augmentation" in flags else train_transform)(transforms)
    evaluate = evaluation_transform(transforms)
    if "--cache" in flags:
        paths = [sample.path for sample in domain.samples]
        read = cached_images(folder / "cache", paths, train.side, workers, Progress(quiet=True).bar)
        train, evaluate = replace(train, read=read), replace(evaluate, read=read)
    options = AdaptationOptions(
        epochs=10**6,
        batch_size=scene.batch_size,
        workers=workers,
        mixed_precision="bf16" if "bf16" in flags else "no",
        channels_last="--channels-last" in flags,
        compile="--compile" in flags,
        fused="--fused" in flags,
    )
    run = RunDirectory(folder / f"run{flags}")
    run.begin({})
    return Adaptation(_model(scene), domain, options, run, train, evaluate, _score, progress=Progress(quiet=True))


def _score(predictions: Predictions) -> dict[str, Any]:
    return evaluation.summarize(predictions.logits.cpu(), torch.zeros_like(predictions.indices), NUM_CLASSES)


def _model(scene: Scene) -> Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = create_backbone(scene.arch, pretrained=False)
        return shot_classifier(backbone.network, NUM_CLASSES, pool_layer=backbone.pool_layer())


class UsualLoop:
    """AnCon as a research script has it: float32, contiguous, the toolkit's loader, a float32 table of votes, the loss
    read every step, two passes over the test images an epoch. Calling it is one epoch."""

    def __init__(self, scene: Scene, domain: Domain, folder: Path, workers: int):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = _model(scene).to(self.device)
        choose_adapted_parameters(self.model, "all-but-head")
        self.optimizer = torch.optim.SGD(
            self.model.get_parameters(1e-2), momentum=0.9, weight_decay=1e-3, nesterov=True
        )
        options = TransformOptions(image_size=scene.image_size)
        train, test = (toolkit_images(domain, folder, options, augment) for augment in (True, False))
        loading = {"batch_size": scene.batch_size, "num_workers": workers}
        self.train_loader = DataLoader(_Numbered(train), shuffle=True, drop_last=True, **loading)
        self.test_loader = DataLoader(test, **loading)
        self.votes = torch.zeros(len(domain), NUM_CLASSES, device=self.device)
        self.threshold: float | None = None

    def __call__(self) -> None:
        self.model.train()
        for indices, images, _ in self.train_loader:
            logits, _ = self.model(images.to(self.device))
            loss = -(self._targets(indices.to(self.device), logits.detach()) * logits.log_softmax(1)).sum(1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
        for _ in range(2):
            self._test()

    def _targets(self, indices: Tensor, logits: Tensor) -> Tensor:
        confidence, labels = logits.softmax(1).max(1)
        mean = confidence.mean().item()
        self.threshold = mean if self.threshold is None else BETA * self.threshold + (1 - BETA) * mean
        ensemble = self.votes[indices]
        self.votes[indices, labels] += (confidence >= self.threshold).float()
        return (1 - SMOOTHING) * nn.functional.one_hot(labels, NUM_CLASSES) + SMOOTHING * ensemble

    @torch.no_grad()
    def _test(self) -> float:
        self.model.eval()
        right = sum(
            (self.model(images.to(self.device)).argmax(1).cpu() == labels).sum().item()
            for images, labels in self.test_loader
        )
        return 100 * right / len(self.test_loader.dataset)  # type: ignore[arg-type]


class _Numbered(Dataset[tuple[Any, ...]]):
    """(index, image, label)"""

    def __init__(self, images: Any):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return index, *self.images[index]
