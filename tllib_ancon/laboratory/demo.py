"""The demo: which runs it makes, and what comes out over its seeds."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from tllib_ancon.data.demo import CROP, SOURCE, TARGET
from tllib_ancon.errors import UserError
from tllib_ancon.laboratory.local import EngineConfig, Local, environments, visible_gpus
from tllib_ancon.laboratory.plan import Run
from tllib_ancon.training.run import RunDirectory

SOURCE_ONLY, REFERENCE = "source-only", "self-training"
METHODS = ("adabn", REFERENCE, "elr", "ancon", "ancon-auto")
FULL_RATE = "full learning rate"
BLOCKS = {
    "": "rendered digits -> handwritten digits, epoch selected by InfoMax; mean ± deviation over {seeds} seed{plural}",
    FULL_RATE: "the same at the full learning rate, too high for a network that is trained already",
}
"""Settings, with the titles of their tables: the backbone learns at a tenth of the rate, or at the full rate."""


@dataclass(frozen=True)
class Demo:
    """The runs of the demo: every method from a source model per seed, all in one folder."""

    out: Path
    seeds: tuple[int, ...]
    source_epochs: int
    epochs: int
    jobs: int  # processes of one thread each, so that the numbers do not depend on how many there are
    blocks: tuple[str, ...] = ("",)

    def runs(self) -> list[Run]:
        common = {
            "root": str(self.out / "data"),
            "data": "ImageList",
            "source": (SOURCE,),
            "arch": "small_cnn",
            "image_size": CROP,
            "scale": (0.5, 1.0),
            "no_hflip": True,
            "threads": 1,
            "workers": 0,
            "mixed_precision": "no",
            "cache": str(self.out / "cache"),
            "quiet": True,
        }
        runs = []
        for seed in self.seeds:
            name = _name("source", seed)
            own = {"seed": seed, "log": str(self.out / name), "scratch": True, "epochs": self.source_epochs}
            runs.append(Run(name, "pretrain", common | own))
        for block, seed, method in product(self.blocks, self.seeds, METHODS):
            name, start = _name(method, seed, block), _name("source", seed)
            own = {
                "seed": seed,
                "log": str(self.out / name),
                "epochs": None if method == "adabn" else self.epochs,
                "target": (TARGET,),
                "checkpoint": str(self.out / start / "checkpoints" / "best.pth"),
                "method": method,
                "criterion": "infomax",
                "record_every": 2,
                "scratch": block == FULL_RATE,
            }
            runs.append(Run(name, "adapt", common | own, start))
        return runs

    def run(self, say: Callable[[str], None]) -> None:
        """Make every run that is not finished.

        After a signal (:class:`~tllib_ancon.errors.Interrupted`) the same command continues.
        """
        say(f"{len(self.runs())} runs on digits that come with the packages, about ten seconds of a core each")
        engine = Local(environments(EngineConfig(jobs=self.jobs), visible_gpus(), os.cpu_count() or 1))
        for run, reason in engine.execute(self.runs(), str(self.out / "data"), self.out, say).items():
            raise UserError(f"{run}: {reason}; give the same command again to try it once more")

    def directories(self, block: str) -> dict[str, list[RunDirectory]]:
        return {
            method: [RunDirectory(self.out / _name(method, seed, block)) for seed in self.seeds] for method in METHODS
        }


def ending(block: str) -> str:
    return f"-{block.replace(' ', '-')}" if block else ""


def _name(method: str, seed: int, block: str = "") -> str:
    return f"{method}{ending(block)}-seed{seed}"


def results(directories: Mapping[str, Sequence[RunDirectory]]) -> dict[str, list[dict[str, Any]]]:
    """Method -> the numbers of the selected model, or of the start, one entry a seed."""
    start = {SOURCE_ONLY: [run.result()["start"] for run in directories[REFERENCE]]}
    return start | {method: [run.result()["selected"] for run in runs] for method, runs in directories.items()}


def summarize(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Mean accuracy (percent) and ECE (in [0, 1]) over seeds, their standard deviations, each seed's numbers, and the
    paired difference to self-training with its standard error. A spread is None for one seed."""
    scores = {method: pd.DataFrame(runs)[["accuracy", "ece", "epoch"]] for method, runs in results.items()}
    summary: dict[str, dict[str, Any]] = {}
    for method, own in scores.items():
        row: dict[str, float] = {}
        for name in ("accuracy", "ece"):
            differences = own[name] - scores[REFERENCE][name]
            row |= {name: own[name].mean(), f"{name}_deviation": own[name].std()}
            row |= {f"{name}_difference": differences.mean(), f"{name}_standard_error": differences.sem()}
        known = {name: None if isnan(value) else value for name, value in row.items()}
        summary[method] = {**known, "per_seed": own.to_dict("records")}
    return summary


def table(summary: Mapping[str, Mapping[str, Any]], title: str) -> str:
    rows: dict[str, list[str]] = {}
    for method, row in summary.items():
        rows[method] = []
        for name, form in (("accuracy", ".1f"), ("ece", ".3f")):
            difference = _spread(row[f"{name}_difference"], row[f"{name}_standard_error"], f"+{form}")
            rows[method] += [_spread(row[name], row[f"{name}_deviation"], form), difference * (method != REFERENCE)]
    columns = ["accuracy (%)", "- self-training", "ECE (15 bins)", "difference"]
    return f"{title}\n\n{pd.DataFrame.from_dict(rows, orient='index', columns=columns).to_string()}\n"


def _spread(value: float, spread: float | None, form: str) -> str:
    return f"{value:{form}}" if spread is None else f"{value:{form}} ± {spread:{form.lstrip('+')}}"
