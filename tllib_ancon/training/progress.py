"""What a training loop measures, and where users see it: a bar and a line for each epoch."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from tllib_ancon.measures import selection
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.processes import is_main
from tllib_ancon.runtime.text import terminal
from tllib_ancon.runtime.types import Metrics, Record


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
        return min(filter(None, bad_steps), default=0)

    def read(self, batch_size: int) -> dict[str, float]:
        """Means of the loss and of the diagnostics, the latest δ, and images a second, of all processes."""
        values = {name: float(processes.mean(total)) / self.steps for name, total in self.sums.items()}
        if self.threshold is not None:
            values["threshold"] = float(self.threshold)
        seconds = time.perf_counter() - self.started
        return {**values, "images_per_second": processes.world_size() * self.steps * batch_size / seconds}


class _Column(NamedTuple):
    """A column of the table of epochs."""

    metric: str
    head: str
    form: str
    meaning: str
    is_of_training: bool = False  # epoch 0 does not have it yet

    def cell(self, metrics: Metrics) -> str:
        if self.metric not in metrics:
            return ""
        return self.form.format(metrics[self.metric])


COLUMNS = (
    _Column("loss", "loss", "{:.4f}", "may rise, since the labels learnt from change", True),
    _Column("threshold", "δ", "{:.3f}", "mean confidence, which a prediction must reach to vote", True),
    _Column("votes", "votes", "{:.0%}", "images that have one", True),
    _Column("infomax", "InfoMax", "{:.4f}", "score without labels, higher is better"),
    _Column("accuracy", "accuracy", "{:.2f} %", ""),
    _Column("ece", "ECE", "{:.3f}", "calibration error, lower is better"),
    _Column("images_per_second", "images/s", "{:.0f}", "", True),
)
"""Columns of the table of epochs."""

MEASURES = {
    "accuracy": "accuracy {:.2f} %",
    "accuracy_one_view": "{:.2f} % from one view",
    "ece": "ECE (15 bins) {:.4f}",
}
"""Metrics by labels in the summary of a run."""


class Progress:
    """A bar and a line an epoch on standard error."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet or not is_main()
        self.columns: list[_Column] = []

    def bar(self, title: str, steps: int, batches: Iterable[Any] | None = None) -> tqdm[Any]:
        """A bar of this many steps. With batches it yields them, and moves by itself."""
        return tqdm(
            batches, total=steps, desc=title, leave=False, disable=self.quiet or None, file=sys.stderr, unit="step"
        )

    def step(self, bar: tqdm[Any], values: Mapping[str, float]) -> None:
        text = " ".join(f"{name} {value:.4g}" for name, value in values.items())
        bar.set_postfix_str(text, refresh=False)

    def epoch(self, title: str, metrics: Metrics, total: int) -> None:
        """A row of the table of epochs, and its head before the first one."""
        number = metrics["epoch"]
        if not self.columns:
            self._begin_table(title, metrics)
        cells = [column.cell(metrics) for column in self.columns]
        self.line(_row(f"{number}/{total}".rjust(len(title)), cells))

    def _begin_table(self, title: str, metrics: Metrics) -> None:
        """Choose the columns by the first metrics; a line with what they mean, and the head of the table."""
        before_training = metrics["epoch"] == 0
        for column in COLUMNS:
            if column.metric in metrics or (before_training and column.is_of_training):
                self.columns.append(column)
        meanings = [f"{column.head}: {column.meaning}" for column in self.columns if column.meaning]
        self.lines(textwrap.wrap("; ".join(meanings), 100))
        self.line(_row(title, [column.head for column in self.columns]))

    def finish(self, result: Record) -> None:
        """Advise what to do where no epoch of an adaptation scores above the source model."""
        if result.get("better_than_start") is False:
            name = result["criterion"]
            start = result["start"][name]
            best = result["selected"][name]
            scores = f"{name} {start:.4f}, {best:.4f} at best; {_end(name)}"
            self.line(
                f"no epoch scores above the source model ({scores}), and adapting may have done harm: a smaller "
                "learning rate often helps, and some labels tell which model is better (tllib-ancon certify)"
            )

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def notes(self, notes: Iterable[Note]) -> None:
        self.lines(map(str, notes))

    def line(self, text: str) -> None:
        if not self.quiet:
            tqdm.write(terminal(text), file=sys.stderr)


def _row(first: str, cells: Iterable[str]) -> str:
    return "".join([first, *(f"{cell:>10}" for cell in cells)]).rstrip()


def result_summary(result: Record) -> str:
    """The lines that an adaptation ends with, from its ``result.json``."""
    lines: list[str] = []
    criterion = result["criterion"]
    chosen = "last"
    measures = MEASURES
    if criterion in selection.CRITERIA:
        chosen = f"selected by {criterion}"
        measures = {criterion: criterion + " {:.4f}", **MEASURES}
        images = "the target images"
        if result["held_out"]:
            images = f"the {result['held_out']} held-out images"
        lines.append(f"{criterion} of {images}: {_end(criterion)}")
    selected = result["selected"]
    last = result["last"]
    lines.append(_measured("source model (epoch 0)", result["start"], measures))
    lines.append(_measured(f"adapted model (epoch {selected['epoch']}, {chosen})", selected, measures))
    if last != selected:
        lines.append(_measured(f"last epoch ({last['epoch']})", last, measures))
    if "changed" in selected:
        lines.append(f"{100 * selected['changed']:.1f} % of the predicted classes changed")
    if result["better_than_start"] is False:
        lines.append(f"no epoch has a better {criterion} than the source model")
    return "\n".join(lines)


def _measured(title: str, metrics: Metrics, measures: Mapping[str, str]) -> str:
    """A line with the measures that an epoch has."""
    values = [form.format(metrics[measure]) for measure, form in measures.items() if measure in metrics]
    if not values:
        return title
    return f"{title}: {', '.join(values)}"


def _end(criterion: str) -> str:
    if selection.CRITERIA[criterion].sign > 0:
        return "higher is better"
    return "lower is better"
