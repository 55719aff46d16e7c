"""A training step: what AnCon adds to self-training's, and how much of the device's arithmetic it reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon import methods
from tllib_ancon.config import AdaptConfig
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.models.classifier import choose_adapted_parameters, shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.training.loop import create_optimizer

BATCH, NUM_SAMPLES, NUM_CLASSES = 64, 5000, 10


class TrainingStep:
    """One step of the adaptation loop on random images; in bfloat16 as ``--mixed-precision bf16 --channels-last``
    makes it.

    Attributes:
        own_seconds: processor time of the method's own part, a step of :meth:`in_parts`
    """

    def __init__(self, method: str, arch: str, side: int, device: str, bf16: bool = False):
        self.generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            backbone = create_backbone(arch, pretrained=False)
            model = shot_classifier(backbone, NUM_CLASSES, finetune=False)
        layout = torch.channels_last if bf16 else torch.preserve_format
        self.model: Any = model.to(device, memory_format=layout)
        choose_adapted_parameters(model, "all-but-head")
        BatchNormPolicy().set_mode(model)
        self.optimizer = create_optimizer(model.get_parameters(1e-3), AdaptConfig(), model)
        method_of = methods.create(method, num_samples=NUM_SAMPLES, num_classes=NUM_CLASSES, feature_dim=256)
        self.method = method_of.to(device)
        self.images = torch.randn(BATCH, 3, side, side, generator=self.generator).to(device)
        self.autocast = torch.autocast(device, torch.bfloat16, enabled=bf16)
        self.own_seconds: list[float] = []

    def __call__(self) -> None:
        with self.autocast:
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


def measure_peak(rounds: int = 20, **_: object) -> list[Row]:
    """AnCon in bfloat16, channels last: ResNet-50 at 224² where there is a GPU, else ResNet-18 at 96²; batches of 64.

    The peak is what the device reaches in products of large bfloat16 matrices, as this torch multiplies them.
    """
    device, arch, side, width = ("cpu", "resnet18", 96, 1024)
    if torch.cuda.is_available():
        device, arch, side, width = ("cuda", "resnet50", 224, 8192)
    factor = torch.randn(width, width, device=device, dtype=torch.bfloat16)
    work: dict[str, Callable[[], object]] = {
        "step": TrainingStep("ancon", arch, side, device, bf16=True),
        "product": lambda: factor @ factor,
    }
    seconds = in_turn(work, rounds, 5, wall_clock)
    step, product = ([operations(one) / 1e12 / value for value in seconds[name]] for name, one in work.items())
    title = f"step of AnCon, {arch} at {side}², {device.upper()}, bf16"
    return [
        row("product of bf16 matrices", product, "TFLOP/s"),
        row(title, step, "TFLOP/s"),
        ratio(f"{title} / the matrix product", step, product),
    ]


def operations(work: Callable[[], object]) -> int:
    """Floating-point additions and multiplications in convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
