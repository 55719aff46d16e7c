"""The demo: which runs it makes, and what comes out over its seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.laboratory import digits
from tllib_ancon.laboratory.curves import draw_curves
from tllib_ancon.laboratory.engine import EngineConfig, finished, make_all
from tllib_ancon.laboratory.local import LocalEngine, gpus_of_runs, visible_gpus
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import counted
from tllib_ancon.runtime.types import Metrics, Options, Show

SOURCE_ONLY = "source-only"
REFERENCE = "self-training"
WITHOUT_EPOCHS = "adabn"
METHODS = (WITHOUT_EPOCHS, REFERENCE, "elr", "ancon", "ancon-auto")
TITLE = "rendered digits -> handwritten digits, epoch selected by InfoMax; mean ± deviation over {seeds}"


@dataclass(frozen=True)
class Demo:
    """The runs of the demo: every method from a source model per seed, all in one folder."""

    out: Path
    seeds: tuple[int, ...]
    source_epochs: int
    epochs: int
    jobs: int  # processes of one thread each, so that the numbers do not depend on how many there are

    def runs(self) -> list[PlannedRun]:
        sources = [self._source_run(seed) for seed in self.seeds]
        adaptations = [self._adaptation(*choice) for choice in product(self.seeds, METHODS)]
        return [*sources, *adaptations]

    def _source_run(self, seed: int) -> PlannedRun:
        name = _name("source", seed)
        settings = {**self._common(name, seed), "scratch": True, "epochs": self.source_epochs}
        return PlannedRun(name, "pretrain", settings)

    def _adaptation(self, seed: int, method: str) -> PlannedRun:
        name = _name(method, seed)
        source = _name("source", seed)
        epochs = None if method == WITHOUT_EPOCHS else self.epochs
        checkpoint = self.out / source / "checkpoints" / "best.pth"
        settings = {
            **self._common(name, seed),
            "epochs": epochs,
            "target": (digits.TARGET,),
            "checkpoint": str(checkpoint),
            "method": method,
            "criterion": "infomax",
        }
        return PlannedRun(name, "adapt", settings, source)

    def _common(self, name: str, seed: int) -> Options:
        return {
            "root": str(self.out / "data"),
            "data": "ImageList",
            "source": (digits.SOURCE,),
            "arch": "small_cnn",
            "image_size": digits.CROP,
            "scale": (0.5, 1.0),
            "no_hflip": True,
            "threads": 1,
            "workers": 0,
            "mixed_precision": "no",
            "cache": str(self.out / "cache"),
            "quiet": True,
            "seed": seed,
            "log": str(self.out / name),
        }

    def clear(self) -> None:
        """Remove the runs of an earlier demo."""
        for run in self.runs():
            RunDirectory(self.out / run.name).clear()

    def run(self, say: Show) -> None:
        """Make every run that is not finished.

        After a signal (:class:`~tllib_ancon.runtime.errors.Interrupted`) the same command continues.
        """
        digits.write_demo_domains(self.out / "data")
        runs = self.runs()
        say(f"{len(runs)} runs on digits that come with the packages, about ten seconds of a core each")
        unfinished = [run for run in runs if not finished(run, self.out)]
        gpus = gpus_of_runs(EngineConfig(jobs=self.jobs), visible_gpus(), self.jobs)
        for run, reason in make_all(unfinished, LocalEngine(gpus, threads=1), self.out, say).items():
            raise UserError(f"{run}: {reason}", "give the same command again to try it once more")

    def results(self) -> dict[str, list[Metrics]]:
        """Method -> the numbers of the selected model, or of the start, one entry a seed."""
        results = {SOURCE_ONLY: [run.result()["start"] for run in self._directories(REFERENCE)]}
        for method in METHODS:
            results[method] = [run.result()["selected"] for run in self._directories(method)]
        return results

    def draw_curves(self) -> None:
        curves = []
        for method in METHODS:
            if method != WITHOUT_EPOCHS:
                curves += [(method, run.metrics()) for run in self._directories(method)]
        draw_curves(curves, self.out / "curves.png")

    def _directories(self, method: str) -> list[RunDirectory]:
        return [RunDirectory(self.out / _name(method, seed)) for seed in self.seeds]

    def title(self) -> str:
        return TITLE.format(seeds=counted(len(self.seeds), "seed"))


def _name(method: str, seed: int) -> str:
    return f"{method}-seed{seed}"


def summarize(results: Mapping[str, Sequence[Metrics]]) -> dict[str, Metrics]:
    """Mean accuracy (percent) and ECE (in [0, 1]) over seeds, their standard deviations, each seed's numbers, and the
    paired difference to self-training with its standard error. A spread is None for one seed."""
    summary: dict[str, dict[str, Any]] = {}
    for method, runs in results.items():
        numbers: Metrics = {}
        for name in ("accuracy", "ece"):
            scores = [run[name] for run in runs]
            differences = np.subtract(scores, [run[name] for run in results[REFERENCE]])
            numbers[name] = fmean(scores)
            numbers[f"{name}_deviation"] = _deviation(scores)
            numbers[f"{name}_difference"] = fmean(differences)
            numbers[f"{name}_standard_error"] = _deviation(differences / sqrt(len(runs)))
        numbers["per_seed"] = [{name: run[name] for name in ("accuracy", "ece", "epoch")} for run in runs]
        summary[method] = numbers
    return summary


def _deviation(values: Sequence[float] | NDArray[np.float64]) -> float | None:
    if len(values) < 2:
        return None
    return stdev(map(float, values))


def table(summary: Mapping[str, Metrics], title: str) -> str:
    rows = [["", "accuracy (%)", "- self-training", "ECE (15 bins)", "difference"]]
    rows += [_row(method, numbers) for method, numbers in summary.items()]
    name_width, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for method, *cells in rows:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append("  ".join([method.ljust(name_width), *aligned]))
    return "\n".join([title, "", *lines, ""])


def _row(method: str, numbers: Metrics) -> list[str]:
    cells = [method]
    for name, form in (("accuracy", ".1f"), ("ece", ".3f")):
        difference = ""
        if method != REFERENCE:
            difference = _spread(numbers[f"{name}_difference"], numbers[f"{name}_standard_error"], form, "+")
        cells += [_spread(numbers[name], numbers[f"{name}_deviation"], form), difference]
    return cells


def _spread(value: float, spread: float | None, form: str, sign: str = "") -> str:
    text = f"{value:{sign}{form}}"
    if spread is None:
        return text
    return f"{text} ± {spread:{form}}"
