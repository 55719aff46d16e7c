"""What a training loop measures, and what the person sees of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from tllib_ancon import selection
from tllib_ancon.self_training import processes
from tllib_ancon.training.launch import is_first


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


class Progress:
    """A progress bar a training epoch and a line after it, on standard error; of many processes the first shows them.

    Args:
        quiet (bool): show nothing. Default: False
        verbose (bool): also a line every ``print_freq`` steps, as TLLib's scripts print it. Default: False
    """

    def __init__(self, quiet: bool = False, verbose: bool = False):
        self.quiet = quiet or not is_first()
        self.verbose = verbose

    def bar(self, title: str, steps: int) -> tqdm[Any]:
        return tqdm(total=steps, desc=title, leave=False, disable=self.quiet or None, file=sys.stderr, unit="step")

    def step(self, bar: tqdm[Any], step: int, values: dict[str, float]) -> None:
        text = " ".join(f"{name} {value:.4g}" for name, value in values.items())
        bar.set_postfix_str(text, refresh=False)
        if self.verbose and not self.quiet:
            tqdm.write(f"{bar.desc} [{step}/{bar.total}] {text}", file=sys.stderr)

    def line(self, text: str) -> None:
        if not self.quiet:
            tqdm.write(text, file=sys.stderr)


def epoch_summary(metrics: Mapping[str, Any], total: int) -> str:
    """One line on an epoch: the numbers that exist among loss, δ, votes, criteria, accuracy, ECE and speed."""
    shown = [
        ("loss", "loss", "{:.4f}"),
        ("threshold", "δ", "{:.3f}"),
        ("votes", "votes", "{:.0%}"),
        ("infomax", "InfoMax", "{:.4f}"),
        ("accuracy", "accuracy", "{:.2f} %"),
        ("ece", "ECE", "{:.3f}"),
        ("images_per_second", "images/s", "{:.0f}"),
    ]
    numbers = [f"{label} {form.format(metrics[name])}" for name, label, form in shown if name in metrics]
    return f"epoch {metrics['epoch']}/{total}: " + ", ".join(numbers)


def result_summary(result: Mapping[str, Any]) -> str:
    """The start, the selected and the last model, a line each, and whether the criterion prefers the start to all.

    Args:
        result: ``result.json`` of an adaptation; accuracy and ECE are shown where the target has labels
    """
    name = result["criterion"]
    chosen_by = f"selected by {name}" if name in selection.CRITERIA else f"selected ({name})"
    models = {"start": result["start"]}
    if "selected" in result:
        models |= {chosen_by: result["selected"], "last": result["last"]}
    lines = [_model_summary(title, metrics, name) for title, metrics in models.items()]
    if name in selection.CRITERIA:
        lines = [f"{name}{_scored(result)}: {_end(name)}", *lines, *_preferred_start(result, name)]
    return "\n".join(lines)


def _scored(result: Mapping[str, Any]) -> str:
    """Which images the criterion scores."""
    number = result.get("held_out")
    if number is None:
        return ""
    return f" over the {number} images held out" if number else " over the images adapted on"


def _end(criterion: str) -> str:
    return "higher is better" if selection.CRITERIA[criterion].higher_is_better else "lower is better"


def _preferred_start(result: Mapping[str, Any], criterion: str) -> list[str]:
    """That the criterion prefers the start to every epoch, if it does."""
    start, selected = (result.get(which, result["start"])[criterion] for which in ("start", "selected"))
    if start == selected or selection.best_epoch([start, selected], criterion) == 1:
        return []
    direction = "fell below" if selected < start else "rose above"
    return [
        f"{criterion} {direction} the start's in every epoch ({start:.4f} at the start, {selected:.4f} at best; "
        f"{_end(criterion)}): by this criterion the start model is better than the adapted ones"
    ]


def _model_summary(title: str, metrics: Mapping[str, Any], criterion: str) -> str:
    measured = [f"{criterion} {metrics[criterion]:.4f}"] if criterion in selection.CRITERIA else []
    if "accuracy" in metrics:
        measured.append(f"accuracy {metrics['accuracy']:.2f} %, ECE (15 bins) {metrics['ece']:.4f}")
    return f"{title} (epoch {metrics['epoch']}): {', '.join(measured)}".removesuffix(": ")
