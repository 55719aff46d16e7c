"""What a training loop measures, and where users see it: a bar, a line for each epoch, a tracker."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from tllib_ancon.measures import indicators as assessing
from tllib_ancon.measures import selection
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import spelled_here, terminal
from tllib_ancon.training.devices import is_main


class Meters:
    """Means over the steps of an epoch; they stay on the device until they are read, by all processes at once."""

    def __init__(self, device: torch.device):
        self.sums = {"loss": torch.zeros((), device=device)}
        self.threshold: Tensor | None = None
        self.bad_step = torch.zeros((), dtype=torch.long, device=device)
        self.steps = 0
        self.started = time.perf_counter()

    def add(self, loss: Tensor, logits: Tensor, diagnostics: Mapping[str, Tensor]) -> None:
        self.steps += 1
        self.threshold = diagnostics.get("threshold", self.threshold)
        for name, value in {"loss": loss.float(), **diagnostics}.items():
            if name != "threshold":
                self.sums[name] = self.sums.get(name, 0) + value
        finite = loss.isfinite() & logits.isfinite().all()
        self.bad_step = torch.where((self.bad_step == 0) & ~finite, self.steps, self.bad_step)

    def first_bad_step(self) -> int:
        bad_steps = processes.gather(self.bad_step.view(1)).tolist()
        return min((step for step in bad_steps if step), default=0)

    def read(self, batch_size: int) -> dict[str, float]:
        """Means of the loss and of the diagnostics, the latest δ, and images a second, of all processes."""
        values = {name: float(processes.mean(total)) / self.steps for name, total in self.sums.items()}
        if self.threshold is not None:
            values["threshold"] = float(self.threshold)
        seconds = time.perf_counter() - self.started
        return {**values, "images_per_second": processes.world_size() * self.steps * batch_size / seconds}


SHOWN = (
    ("loss", "loss", "{:.4f}", "may rise, since the labels learnt from change"),
    ("threshold", "δ", "{:.3f}", "mean confidence, which a prediction must reach to vote"),
    ("votes", "votes", "{:.0%}", "images that have one"),
    ("infomax", "InfoMax", "{:.4f}", "score without labels, higher is better"),
    ("accuracy", "accuracy", "{:.2f} %", ""),
    ("ece", "ECE", "{:.3f}", "calibration error, lower is better"),
    ("images_per_second", "images/s", "{:.0f}", ""),
)
"""Columns of the table of epochs: the number, its head, its form, and what it means."""
MEASURES = {
    "accuracy": "accuracy {:.2f} %",
    "accuracy_one_view": "{:.2f} % from one view",
    "ece": "ECE (15 bins) {:.4f}",
}
LEARNING = ("loss", "threshold", "votes", "images_per_second")
"""What the epoch before the first step does not have yet."""


class Progress:
    """A bar and a line an epoch on standard error, a line every ``print_freq`` steps if ``verbose``, and a tracker."""

    def __init__(self, quiet: bool = False, verbose: bool = False):
        self.quiet = quiet or not is_main()
        self.verbose = verbose
        self.tracker: Any = None
        self.columns: list[tuple[str, str, str, str]] = []

    def bar(self, title: str, steps: int) -> tqdm[Any]:
        return tqdm(total=steps, desc=title, leave=False, disable=self.quiet or None, file=sys.stderr, unit="step")

    def step(self, bar: tqdm[Any], step: int, values: Mapping[str, float]) -> None:
        text = " ".join(f"{name} {value:.4g}" for name, value in values.items())
        bar.set_postfix_str(text, refresh=False)
        if self.verbose:
            self.line(f"{bar.desc} [{step}/{bar.total}] {text}")

    def epoch(self, title: str, metrics: Mapping[str, Any], total: int) -> None:
        if self.tracker is not None:
            numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
            self.tracker.log(numbers, step=numbers.pop("epoch"))
        if not self.columns:
            found = {*metrics, *(LEARNING if metrics["epoch"] == 0 else ())}
            self.columns = [column for column in SHOWN if column[0] in found]
            meanings = "; ".join(f"{label}: {told}" for _, label, _, told in self.columns if told)
            for line in (*textwrap.wrap(meanings, 100), _row(title, (label for _, label, _, _ in self.columns))):
                self.line(line)
        cells = (form.format(metrics[name]) if name in metrics else "" for name, _, form, _ in self.columns)
        self.line(_row(f"{metrics['epoch']}/{total}".rjust(len(title)), cells))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Advise what to do where no epoch of an adaptation scores above the source model."""
        if result.get("better_than_start") is False:
            name = result["criterion"]
            scores = f"{name} {result['start'][name]:.4f}, {result['selected'][name]:.4f} at best; {_end(name)}"
            self.line(
                f"no epoch scores above the source model ({scores}), and adapting may have done harm: a smaller "
                "learning rate often helps, and some labels tell which model is better (tllib-ancon certify)"
            )
        if self.tracker is not None:
            self.tracker.finish()

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def line(self, text: str) -> None:
        if not self.quiet:
            tqdm.write(terminal(spelled_here(text)), file=sys.stderr)


def _row(first: str, cells: Iterable[str]) -> str:
    return "".join([first, *(f"{cell:>10}" for cell in cells)]).rstrip()


def result_summary(result: Mapping[str, Any]) -> str:
    """The lines that an adaptation ends with, from its ``result.json``."""
    name, held_out = result["criterion"], result["held_out"]
    start, adapted, last = result["start"], result["selected"], result["last"]
    lines, chosen, measures = assessing.before_adapting(result), "last", MEASURES
    if name in selection.CRITERIA:
        chosen, measures = f"selected by {name}", {name: name + " {:.4f}", **MEASURES}
        scored = f"the {held_out} held-out images" if held_out else "the target images"
        lines.append(f"{name} of {scored}: {_end(name)}")
    titles = {"source model (epoch 0)": start, f"adapted model (epoch {adapted['epoch']}, {chosen})": adapted}
    if last != adapted:
        titles[f"last epoch ({last['epoch']})"] = last
    for title, metrics in titles.items():
        measured = [form.format(metrics[measure]) for measure, form in measures.items() if measure in metrics]
        lines.append(f"{title}: {', '.join(measured)}".removesuffix(": "))
    if "changed" in adapted:
        lines.append(f"{100 * adapted['changed']:.1f} % of the predicted classes changed")
    if result["better_than_start"] is False:
        lines.append(f"no epoch has a better {name} than the source model")
    if "taught" in result:
        lines.append(f"{result['taught']} labelled images trained the model and do not certify it")
    return "\n".join(lines)


def _end(criterion: str) -> str:
    return "higher is better" if selection.CRITERIA[criterion].sign > 0 else "lower is better"


def tracker(name: str, run: Path, settings: Mapping[str, Any]) -> Any:
    from accelerate import tracking

    if name not in map(str, tracking.get_available_trackers()):
        raise UserError(f"`track={name}` needs the package {name}; install it: pip install {name}")
    folder = run / "track"
    folder.mkdir(parents=True, exist_ok=True)
    made = tracking.LOGGER_TYPE_TO_CLASS[name](run.name, **{"dir" if name == "wandb" else "logging_dir": str(folder)})
    getattr(made, "start", lambda: None)()  # older versions of Accelerate start it at once
    plain = int | float | str | bool
    made.store_init_configuration({key: one if isinstance(one, plain) else str(one) for key, one in settings.items()})
    return made
