"""The demo: which runs it makes, in how many processes, and what comes out over its seeds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tllib_ancon.config import AdaptConfig, PretrainConfig
from tllib_ancon.data.demo import CROP, SOURCE, TARGET
from tllib_ancon.training.adapt import adapt
from tllib_ancon.training.pretrain import pretrain
from tllib_ancon.training.run_directory import RunDirectory

SOURCE_ONLY, REFERENCE = "source-only", "self-training"
METHODS = ("adabn", REFERENCE, "elr", "ancon", "ancon-auto")
FULL_RATE = "full learning rate"
BLOCKS = ("", FULL_RATE)
"""Of settings: the backbone learns at a tenth of the rate, as a pre-trained one should; and all of it at the full rate,
which is too high for a network that is trained already."""


@dataclass(frozen=True)
class Demo:
    """The runs of the demo.

    Attributes:
        out: folder of data and runs
        seeds: each with a source model of its own, which all methods start from
        source_epochs, epochs: of a source model and of an adaptation
        jobs: processes, each with one thread, so that the numbers do not depend on their number
    """

    out: Path
    seeds: tuple[int, ...]
    source_epochs: int
    epochs: int
    jobs: int

    def source(self, seed: int) -> PretrainConfig:
        """The configuration of a source model."""
        log = str(self.directory("source", seed).path)
        return PretrainConfig(**self._common(seed), scratch=True, epochs=self.source_epochs, log=log)

    def adaptation(self, method: str, seed: int, block: str = "") -> AdaptConfig:
        """The configuration of an adaptation."""
        start = self.directory("source", seed).checkpoints / "best.pth"
        length = {} if method == "adabn" else {"epochs": self.epochs}
        return AdaptConfig(
            **self._common(seed),
            **length,
            target=(TARGET,),
            checkpoint=str(start),
            method=method,
            criterion="infomax",
            scratch=block == FULL_RATE,
            log=str(self.directory(method, seed, block).path),
        )

    def directory(self, name: str, seed: int, block: str = "") -> RunDirectory:
        """Where a run is kept."""
        ending = f"-{block.replace(' ', '-')}" if block else ""
        return RunDirectory(self.out / f"{name}{ending}-seed{seed}")

    def directories(self) -> Iterator[RunDirectory]:
        """Of all runs."""
        for seed in self.seeds:
            yield self.directory("source", seed)
            for block in BLOCKS:
                yield from (self.directory(method, seed, block) for method in METHODS)

    def run(self, say: Callable[[str], None]) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Make every run that is not finished.

        Args:
            say: called with which run has ended, and how

        Returns: block -> method -> the numbers of the start or of the selected model, one entry a seed
        """
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_one_thread) as pool:
            sources = [(("source", seed, ""), self.source(seed)) for seed in self.seeds]
            adaptations = [
                ((method, seed, block), self.adaptation(method, seed, block))
                for block in BLOCKS
                for seed in self.seeds
                for method in METHODS
            ]
            total = len(sources) + len(adaptations)
            _make(pool, pretrain, sources, 0, total, say)
            summaries = _make(pool, _adapted, adaptations, len(sources), total, say)
        return {block: self._chosen(summaries, block) for block in BLOCKS}

    def metrics(self, block: str = "") -> dict[str, list[list[dict[str, Any]]]]:
        """Method -> the metrics of each epoch, one list a seed."""
        return {
            method: [self.directory(method, seed, block).metrics() for seed in self.seeds]
            for method in METHODS
            if method != "adabn"
        }

    def _chosen(self, summaries: Mapping[Any, Any], block: str) -> dict[str, list[dict[str, Any]]]:
        results = {method: [summaries[method, seed, block] for seed in self.seeds] for method in METHODS}
        chosen = {SOURCE_ONLY: [result["start"] for result in results[REFERENCE]]}
        return chosen | {method: [result["selected"] for result in results[method]] for method in METHODS}

    def _common(self, seed: int) -> dict[str, Any]:
        return {
            "root": str(self.out / "data"),
            "data": "ImageList",
            "source": (SOURCE,),
            "arch": "small_cnn",
            "image_size": CROP,
            "scale": (0.5, 1.0),
            "no_hflip": True,
            "seed": seed,
            "threads": 1,
            "workers": 0,
            "cache": str(self.out / "cache"),
            "device_augmentation": True,
            "quiet": True,
        }


def summarize(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Per method the mean accuracy (percent) and ECE (in [0, 1]) over seeds with their standard deviations, each seed's
    numbers, and the paired difference to self-training with its standard error. A spread needs two seeds, and is None
    for one."""
    return {method: _row(runs, results[REFERENCE]) for method, runs in results.items()}


def _row(runs: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in ("accuracy", "ece"):
        values = [run[name] for run in runs]
        differences = [run[name] - other[name] for run, other in zip(runs, reference, strict=True)]
        several = len(values) > 1
        row[name] = fmean(values)
        row[f"{name}_deviation"] = stdev(values) if several else None
        row[f"{name}_difference"] = fmean(differences)
        row[f"{name}_standard_error"] = stdev(differences) / len(differences) ** 0.5 if several else None
    return {**row, "per_seed": [{name: run[name] for name in ("accuracy", "ece", "epoch")} for run in runs]}


def table(summary: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """A row a method: accuracy and ECE, mean ± standard deviation over the seeds, and the paired difference to
    self-training ± its standard error."""
    lines = [title, "", f"{'':<15}{'accuracy (%)':>16}{'- self-training':>19}{'ECE (15 bins)':>20}{'difference':>19}"]
    for method, row in summary.items():
        accuracy = _spread(row["accuracy"], row["accuracy_deviation"], ".1f")
        ece = _spread(row["ece"], row["ece_deviation"], ".3f")
        better = _spread(row["accuracy_difference"], row["accuracy_standard_error"], ".1f", signed=True)
        calibrated = _spread(row["ece_difference"], row["ece_standard_error"], ".3f", signed=True)
        same = method == REFERENCE
        lines.append(
            f"{method:<15}{accuracy:>16}{'' if same else better:>19}{ece:>20}{'' if same else calibrated:>19}".rstrip()
        )
    return "\n".join(lines) + "\n"


def _spread(value: float, spread: float | None, form: str, signed: bool = False) -> str:
    text = format(value, f"{'+' if signed else ''}{form}")
    return text if spread is None else f"{text} ± {format(spread, form)}"


def _make(
    pool: ProcessPoolExecutor,
    function: Callable[[Any], Any],
    configurations: Sequence[tuple[tuple[Any, ...], Any]],
    done: int,
    total: int,
    say: Callable[[str], None],
) -> dict[tuple[Any, ...], Any]:
    futures = {pool.submit(function, config): key for key, config in configurations}
    results = {}
    try:
        for future in as_completed(futures):
            key = futures[future]
            results[key] = future.result()
            done += 1
            name, seed, block = key
            numbers = results[key]["selected"]
            where = f", {block}" if block else ""
            say(f"[{done}/{total}] {name}, seed {seed}{where}: accuracy {numbers['accuracy']:.1f} %")
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    return results


def _adapted(config: AdaptConfig) -> Mapping[str, Any]:
    return adapt(config=config).summary


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
