"""What a training loop measures, and where users see it: a bar and a line for each epoch, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from tllib_ancon.runtime import processes
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.processes import is_main
from tllib_ancon.runtime.text import showable
from tllib_ancon.runtime.types import Metrics

SHOWN = {
    "loss": "loss {:.4f}",
    "threshold": "δ {:.3f}",
    "votes": "votes {:4.0%}",
    "sure": "sure {:4.0%}",
    "infomax": "InfoMax {:.4f}",
    "accuracy": "accuracy {:.2f} %",
    "ece": "ECE {:.3f}",
    "images_per_second": "{:.0f} images/s",
}
"""Metrics in the line of an epoch."""


class Meters:
    """Means over the steps of an epoch; they stay on the device until they are read, by all processes at once."""

    def __init__(self, device: torch.device):
        self.sums = {"loss": torch.zeros((), device=device)}
        self.threshold: Tensor | None = None
        self.finite = torch.ones((), dtype=torch.bool, device=device)
        self.steps = 0
        self.started = time.perf_counter()

    def add(self, loss: Tensor, logits: Tensor, diagnostics: Mapping[str, Tensor]) -> None:
        self.steps += 1
        self.threshold = diagnostics.get("threshold", self.threshold)
        for name, value in {"loss": loss.float(), **diagnostics}.items():
            if name != "threshold":
                self.sums[name] = self.sums.get(name, 0) + value
        self.finite &= loss.isfinite() & logits.isfinite().all()

    def are_finite(self) -> bool:
        """Whether all losses and logits of all processes are."""
        return bool(processes.gather(self.finite.view(1)).all())

    def read(self, batch_size: int) -> dict[str, float]:
        """Means of the loss and of the diagnostics, the latest δ, and images a second, of all processes."""
        values = {name: float(processes.mean(total)) / self.steps for name, total in self.sums.items()}
        if self.threshold is not None:
            values["threshold"] = float(self.threshold)
        seconds = time.perf_counter() - self.started
        return {**values, "images_per_second": processes.world_size() * self.steps * batch_size / seconds}


class Progress:
    """Bars and lines on standard error, of the main process alone."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet or not is_main()

    def bar(self, title: str, steps: int, batches: Iterable[Any] | None = None) -> tqdm[Any]:
        """A bar of this many steps. With batches it yields them, and moves by itself."""
        return tqdm(
            batches, total=steps, desc=title, leave=False, disable=self.quiet or None, file=sys.stderr, unit="step"
        )

    def epoch(self, metrics: Metrics, total: int) -> None:
        values = [form.format(metrics[name]) for name, form in SHOWN.items() if name in metrics]
        self.line("  ".join([f"epoch {metrics['epoch']}/{total}", *values]))

    def notes(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self.line(str(note))

    def line(self, text: str) -> None:
        if not self.quiet:
            tqdm.write(showable(text), file=sys.stderr)
