"""Running means of an epoch that never make a step wait for the device."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from tllib_ancon.self_training import processes


class Meters:
    """Running means of an epoch that stay on the device until they are read, by all processes at once."""

    def __init__(self, device: torch.device):
        self.sums = {"loss": torch.zeros((), device=device)}
        self.threshold: Tensor | None = None
        self.bad_step = torch.zeros((), dtype=torch.long, device=device)
        self.steps = 0
        self.started = time.perf_counter()

    def add(self, loss: Tensor, logits: Tensor, diagnostics: Mapping[str, Tensor]) -> None:
        self.steps += 1
        self.sums["loss"] += loss.float()
        for name, value in diagnostics.items():
            if name == "threshold":
                self.threshold = value
            else:
                self.sums[name] = self.sums.get(name, 0) + value
        finite = loss.isfinite() & logits.isfinite().all()
        self.bad_step = torch.where((self.bad_step == 0) & ~finite, self.steps, self.bad_step)

    def first_bad_step(self) -> int:
        """Number of the first step of the epoch that was not finite, from 1; 0 if all were."""
        bad_steps = processes.gather(self.bad_step.view(1)).tolist()
        return min((step for step in bad_steps if step), default=0)

    def read(self, batch_size: int) -> dict[str, float]:
        """Means of the loss and of the diagnostics, the latest δ, and images a second, of all processes."""
        values = {name: float(processes.mean(total)) / self.steps for name, total in self.sums.items()}
        if self.threshold is not None:
            values["threshold"] = float(self.threshold)
        elapsed = time.perf_counter() - self.started
        return {**values, "images_per_second": processes.world_size() * self.steps * batch_size / elapsed}
