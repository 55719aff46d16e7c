"""The demo: which runs it makes, and what comes out over its seeds."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tllib_ancon.config import AdaptConfig, PretrainConfig
from tllib_ancon.data.demo import CROP, SOURCE, TARGET
from tllib_ancon.errors import BAD_INPUT, Interrupted, UserError, in_words
from tllib_ancon.orphan import end_with
from tllib_ancon.paper.local import Engine, Failure
from tllib_ancon.paper.plan import Run
from tllib_ancon.training.adapt import adapt
from tllib_ancon.training.pretrain import pretrain
from tllib_ancon.training.run import RunDirectory

SOURCE_ONLY, REFERENCE = "source-only", "self-training"
METHODS = ("adabn", REFERENCE, "elr", "ancon", "ancon-auto")
FULL_RATE = "full learning rate"
BLOCKS = {
    "": "rendered digits -> handwritten digits, epoch selected by InfoMax; mean ± deviation over {seeds} seed{plural}",
    FULL_RATE: "the same at the full learning rate, too high for a network that is trained already",
}
"""Of settings, with the titles of their tables: the backbone learns at a tenth of the rate, as a pre-trained one
should; and all of it at the full rate."""


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
        """All of them, source models first."""
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
            "device_augmentation": True,
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
        """Make every run that is not finished. After a signal (:class:`Interrupted`) the same command continues."""
        say(f"{len(self.runs())} runs on digits that come with the packages, about ten seconds of a core each")
        if failures := Workers(self.jobs).execute(self.runs(), "", self.out, say):
            raise UserError(f"{failures[0].run}: {failures[0].reason}")

    def directories(self, block: str) -> dict[str, list[RunDirectory]]:
        """Method -> its run directories, one a seed."""
        return {
            method: [RunDirectory(self.out / _name(method, seed, block)) for seed in self.seeds] for method in METHODS
        }


def ending(block: str) -> str:
    """What the names of a block's files end in."""
    return f"-{block.replace(' ', '-')}" if block else ""


def _name(method: str, seed: int, block: str = "") -> str:
    return f"{method}{ending(block)}-seed{seed}"


class Workers(Engine):
    """Makes runs in processes that stay, with one thread each: the demo's are shorter than the start of a process."""

    def __init__(self, jobs: int):
        self.at_a_time = self.most_started = jobs
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(jobs, context, _begin_worker, (os.getpid(),))

    def execute(self, runs: Sequence[Run], root: str, out: Path, say: Callable[[str], None]) -> list[Failure]:
        with self.pool:
            return super().execute(runs, root, out, say)

    def start(self, title: str, run: Run) -> Future[str]:
        return self.pool.submit(_made, title, run.config)

    def ended(self, running: Mapping[str, Future[str]]) -> dict[str, str | None]:
        wait(running.values(), 0.5, FIRST_COMPLETED)
        ended: dict[str, str | None] = {}
        for name in [name for name, future in running.items() if future.done()]:
            try:
                self.say(running[name].result())
                ended[name] = None
            except BAD_INPUT as error:
                ended[name] = in_words(error)
        return ended

    def end(self, running: Sequence[Future[str]]) -> None:
        for process in multiprocessing.active_children():
            process.terminate()


def _begin_worker(parent: int) -> None:
    import torch

    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent, which gets it too, ends its processes by SIGTERM
    torch.set_num_threads(1)


def _made(title: str, config: AdaptConfig | PretrainConfig) -> str:
    """In a worker: make one run, and give the line that tells how it has ended."""
    try:
        result = pretrain(config) if isinstance(config, PretrainConfig) else adapt(config=config).summary
    except Interrupted as stop:
        raise UserError(str(stop)) from None  # which goes to another process, as Interrupted does not
    return f"{title}: accuracy {result['selected']['accuracy']:.1f} %"


def results(directories: Mapping[str, Sequence[RunDirectory]]) -> dict[str, list[dict[str, Any]]]:
    """Method -> the numbers of the selected model, or of the start, one entry a seed."""
    start = {SOURCE_ONLY: [run.result()["start"] for run in directories[REFERENCE]]}
    return start | {method: [run.result()["selected"] for run in runs] for method, runs in directories.items()}


def summarize(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Per method the mean accuracy (percent) and ECE (in [0, 1]) over seeds with their standard deviations, each seed's
    numbers, and the paired difference to self-training with its standard error. A spread needs two seeds, and is None
    for one."""
    summary: dict[str, dict[str, Any]] = {}
    for method, runs in results.items():
        row = summary[method] = {}
        for name in ("accuracy", "ece"):
            values = [run[name] for run in runs]
            differences = [run[name] - other[name] for run, other in zip(runs, results[REFERENCE], strict=True)]
            several = len(values) > 1
            row[name] = fmean(values)
            row[f"{name}_deviation"] = stdev(values) if several else None
            row[f"{name}_difference"] = fmean(differences)
            row[f"{name}_standard_error"] = stdev(differences) / len(differences) ** 0.5 if several else None
        row["per_seed"] = [{name: run[name] for name in ("accuracy", "ece", "epoch")} for run in runs]
    return summary


def table(summary: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """A row a method: accuracy and ECE, mean ± standard deviation over the seeds, and the paired difference to
    self-training ± its standard error."""
    lines = [title, "", f"{'':<15}{'accuracy (%)':>16}{'- self-training':>19}{'ECE (15 bins)':>20}{'difference':>19}"]
    for method, row in summary.items():
        cells = []
        for name, form in (("accuracy", ".1f"), ("ece", ".3f")):
            cells.append(_spread(row[name], row[f"{name}_deviation"], form))
            difference = _spread(row[f"{name}_difference"], row[f"{name}_standard_error"], form, "+")
            cells.append("" if method == REFERENCE else difference)
        lines.append("{:<15}{:>16}{:>19}{:>20}{:>19}".format(method, *cells).rstrip())
    return "\n".join(lines) + "\n"


def _spread(value: float, spread: float | None, form: str, sign: str = "") -> str:
    text = format(value, sign + form)
    return text if spread is None else f"{text} ± {format(spread, form)}"
