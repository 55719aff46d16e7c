"""A training step: what AnCon adds to self-training's."""

import time
from statistics import median
from typing import Any

import torch

from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.models.classifier import choose_adapted_parameters, shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.training.loop import _create_optimizer

BATCH, NUM_SAMPLES, NUM_CLASSES = 64, 5000, 10


class TrainingStep:
    """One step of the adaptation loop on random images.

    Attributes:
        own_seconds: processor time of the method's own part, a step of :meth:`in_parts`
    """

    def __init__(self, method: str, arch: str, side: int, device: str):
        self.generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            backbone = create_backbone(arch, pretrained=False)
            model = shot_classifier(backbone, NUM_CLASSES, finetune=False)
        self.model: Any = model.to(device)
        choose_adapted_parameters(model, "all-but-head")
        BatchNormPolicy().set_mode(model)
        self.optimizer = _create_optimizer(model.get_parameters(1e-3), AdaptConfig(), model)
        method_of = methods.create(method, num_samples=NUM_SAMPLES, num_classes=NUM_CLASSES, feature_dim=256)
        self.method = method_of.to(device)
        self.images = torch.randn(BATCH, 3, side, side, generator=self.generator).to(device)
        self.own_seconds: list[float] = []

    def __call__(self) -> None:
        logits, features = self.model(self.images)
        self.method(self._indices(), logits, features).backward()
        self._update()

    def in_parts(self) -> None:
        """The same step of a method whose loss is of the logits, with the backward pass in two: the method's, from its
        loss to the logits, and the model's."""
        logits, features = self.model(self.images)
        indices, leaf = self._indices(), logits.detach().requires_grad_()
        started = time.thread_time()
        self.method(indices, leaf, features).backward()
        self.own_seconds.append(time.thread_time() - started)
        logits.backward(leaf.grad)
        self._update()

    def _indices(self) -> torch.Tensor:
        return torch.randint(NUM_SAMPLES, (BATCH,), generator=self.generator)

    def _update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(rounds: int = 600, **_: object) -> list[Row]:
    """The small CNN at 32² on the CPU, and ResNet-50 at 224² where there is a GPU; batches of 64.

    On the CPU the model's part of a step is the same for both methods, and its noise is greater than what they differ
    by: two copies of one method differ by up to 1 % a step. So the ratio that is judged leaves it out, and compares the
    methods' own parts, timed within each step.
    """
    title, warmup = "small CNN at 32², CPU", 5
    plain, ancon = (TrainingStep(name, "small_cnn", 32, "cpu") for name in ("self-training", "ancon"))
    seconds = in_turn({"plain": plain.in_parts, "ancon": ancon.in_parts}, rounds, warmup)
    typical = median(seconds["plain"])
    added = [a - p for a, p in zip(ancon.own_seconds[warmup:], plain.own_seconds[warmup:], strict=True)]
    rows = [
        row(f"step of self-training, {title}", [1e3 * value for value in seconds["plain"]], "ms"),
        row("what AnCon adds to it", [1e3 * value for value in added], "ms"),
        row("step of AnCon / of self-training, by that", [1 + value / typical for value in added], "x", at_most=1.02),
        ratio("step of AnCon / of self-training, whole steps", seconds["ancon"], seconds["plain"]),
    ]
    if torch.cuda.is_available():
        title = "ResNet-50 at 224², GPU"
        steps = {name: TrainingStep(name, "resnet50", 224, "cuda") for name in ("self-training", "ancon")}
        plain_s, ancon_s = in_turn(steps, rounds, warmup, wall_clock).values()
        rows += [
            row(f"step of self-training, {title}", [1e3 * value for value in plain_s], "ms"),
            ratio(f"step of AnCon / of self-training, {title}", ancon_s, plain_s, at_most=1.01),
        ]
    return rows
