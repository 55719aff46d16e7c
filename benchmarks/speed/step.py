"""What AnCon adds to a step of self-training."""

from __future__ import annotations

from statistics import median

import torch

from benchmarks.speed.timing import Row, in_turn, process_clock, ratio, row, wall_clock
from tllib_ancon import methods
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import adaptation_mode, shot_classifier
from tllib_ancon.models.parameters import choose_adapted_parameters
from tllib_ancon.training.optimization import create_sgd

BATCH, NUM_SAMPLES, NUM_CLASSES = 64, 5000, 10
WARMUP = 5


def measure(rounds: int = 600) -> list[Row]:
    """The small CNN at 32² on the CPU, and ResNet-50 at 224² where there is a GPU; batches of 64."""
    rows = _on_cpu(rounds)
    if torch.cuda.is_available():
        rows += _on_gpu(rounds)
    return rows


def _on_cpu(rounds: int) -> list[Row]:
    """The model's part of a step is the same for both methods, and its noise is greater than what they differ by: two
    copies of one method differ by up to 1 % a step. So the ratio that is judged leaves it out, and compares the
    methods' own parts, timed within each step."""
    title = "small CNN at 32², CPU"
    plain, ancon = (TrainingStep(name, "small_cnn", 32, torch.device("cpu")) for name in ("self-training", "ancon"))
    seconds = in_turn({"plain": plain.in_parts, "ancon": ancon.in_parts}, rounds, WARMUP)
    typical = median(seconds["plain"])
    added = [a - p for a, p in zip(ancon.own_seconds[WARMUP:], plain.own_seconds[WARMUP:], strict=True)]
    return [
        row(f"step of self-training, {title}", [1e3 * value for value in seconds["plain"]], "ms"),
        row("what AnCon adds to it", [1e3 * value for value in added], "ms"),
        row("step of AnCon / of self-training, by that", [1 + value / typical for value in added], "x", at_most=1.02),
        ratio("step of AnCon / of self-training, whole steps", seconds["ancon"], seconds["plain"]),
    ]


def _on_gpu(rounds: int) -> list[Row]:
    title = "ResNet-50 at 224², GPU"
    steps = {name: TrainingStep(name, "resnet50", 224, torch.device("cuda")) for name in ("self-training", "ancon")}
    seconds = in_turn(steps, rounds, WARMUP, wall_clock)
    return [
        row(f"step of self-training, {title}", [1e3 * value for value in seconds["self-training"]], "ms"),
        ratio(f"step of AnCon / of self-training, {title}", seconds["ancon"], seconds["self-training"], at_most=1.01),
    ]


class TrainingStep:
    """One step of the adaptation loop on random images.

    Attributes:
        own_seconds: processor time of the method's own part, a step of :meth:`in_parts`
    """

    def __init__(self, method: str, arch: str, side: int, device: torch.device):
        self.generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            backbone = create_backbone(arch, pretrained=False)
            model = shot_classifier(backbone.network, NUM_CLASSES, 256, backbone.pool_layer(), finetune=False)
        self.model = model.to(device)
        choose_adapted_parameters(self.model, "all-but-head")
        adaptation_mode(self.model)
        self.optimizer = create_sgd(self.model.get_parameters(1e-3), momentum=0.9, weight_decay=1e-3)
        self.method = methods.create(method, num_samples=NUM_SAMPLES, num_classes=NUM_CLASSES, feature_dim=256).to(
            device
        )
        self.images = torch.randn(BATCH, 3, side, side, generator=self.generator).to(device)
        self.own_seconds: list[float] = []

    def __call__(self) -> None:
        logits, features = self._outputs()
        self.method(self._indices(), logits, features).backward()
        self._update()

    def in_parts(self) -> None:
        """The same step of a method whose loss is of the logits, with the backward pass in two: the method's, from its
        loss to the logits, and the model's."""
        logits, features = self._outputs()
        indices, leaf = self._indices(), logits.detach().requires_grad_()
        started = process_clock()
        self.method(indices, leaf, features).backward()
        self.own_seconds.append(process_clock() - started)
        logits.backward(leaf.grad)
        self._update()

    def _outputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        outputs: tuple[torch.Tensor, torch.Tensor] = self.model(self.images)
        return outputs

    def _indices(self) -> torch.Tensor:
        return torch.randint(NUM_SAMPLES, (BATCH,), generator=self.generator)

    def _update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
