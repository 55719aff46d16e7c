"""How much of the device's arithmetic a training step reaches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.step import TrainingStep
from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock

WARMUP = 5


def measure(rounds: int = 20) -> list[Row]:
    """AnCon in bfloat16, channels last: ResNet-50 at 224² where there is a GPU, else ResNet-18 at 96²; batches of 64.

    The peak is what the device reaches in products of large bfloat16 matrices, as this torch multiplies them.
    """
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    title, arch, side, width = (
        ("ResNet-50 at 224², GPU", "resnet50", 224, 8192) if on_gpu else ("ResNet-18 at 96², CPU", "resnet18", 96, 1024)
    )
    work: dict[str, Callable[[], None]] = {
        "step": MixedStep("ancon", arch, side, device),
        "product": Product(width, device),
    }
    seconds = in_turn(work, rounds, WARMUP, wall_clock)
    done = {name: operations(one) / 1e12 for name, one in work.items()}
    step, product = ([done[name] / value for value in seconds[name]] for name in work)
    return [
        row("product of bf16 matrices", product, "TFLOP/s"),
        row(f"step of AnCon, {title}, bf16", step, "TFLOP/s"),
        ratio(f"step of AnCon, {title}, bf16 / the matrix product", step, product),
    ]


class MixedStep(TrainingStep):
    """A step as ``--mixed-precision bf16 --channels-last`` makes it."""

    def __init__(self, method: str, arch: str, side: int, device: torch.device):
        super().__init__(method, arch, side, device)
        self.model.to(memory_format=torch.channels_last)

    def _outputs(self) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.images.device.type, torch.bfloat16):
            return super()._outputs()


class Product:
    """The product of two square bfloat16 matrices."""

    def __init__(self, side: int, device: torch.device):
        self.factor = torch.randn(side, side, device=device, dtype=torch.bfloat16)

    def __call__(self) -> None:
        self.factor @ self.factor


def operations(work: Callable[[], None]) -> int:
    """Floating-point additions and multiplications in convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
