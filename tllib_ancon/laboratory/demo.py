"""The demo: a plan on digits that come with packages, and what comes out over its seeds."""

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

from pydantic import Field

from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.config.types import Seed
from tllib_ancon.laboratory import digits
from tllib_ancon.laboratory.engine import EngineConfig, LocalEngine, make_all
from tllib_ancon.laboratory.plan import BenchmarkPlan, PlannedRun
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runs.files import write_json
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import counted, say
from tllib_ancon.runtime.types import Metrics

SOURCE_ONLY = "source-only"
METHODS = ("adabn", "self-training", "elr", "ancon", "ancon-auto")


class DemoConfig(Settings):
    """Which runs the demo makes."""

    FLAG = Flag(group="options", common=True)

    out: Annotated[str, Flag(metavar="DIR")] = "ancon-demo"
    """folder of the data, the runs and the results"""
    seeds: tuple[Seed, ...] = (0,)
    """seeds, each with a source model of its own; five seeds show differences of a few points"""
    source_epochs: int = Field(10, ge=1)
    """passes over the images for each source model"""
    epochs: int = Field(12, ge=1)
    """passes over the images for each adaptation"""
    jobs: int | None = Field(None, ge=1)
    """runs at a time, of one thread each; by default one for each GPU, or without a GPU one for each core"""


def demo(config: DemoConfig) -> None:
    """Make every run that is not finished, and print and write their means.

    After a signal (:class:`~tllib_ancon.runtime.errors.Interrupted`) the same command continues.
    """
    started = time.perf_counter()
    show = partial(say, file=sys.stderr)
    out = Path(config.out)
    digits.write_demo_domains(out / "data")
    runs = runs_of(config)
    show(f"{len(runs)} runs on digits that come with the packages, about ten seconds of a core each")
    for run, reason in make_all(runs, LocalEngine(EngineConfig(jobs=config.jobs)), show).items():
        raise UserError(f"{run}: {reason}", "give the same command again to try it once more")
    summary = _summary(runs)
    print(_table(summary))
    seconds = round(time.perf_counter() - started, 1)
    write_json(out / "summary.json", {**summary, "seconds": seconds})
    say(f"{seconds:.0f} s; numbers in {out / 'summary.json'}; figures: tllib-ancon report {out}")
    if len(config.seeds) < 5:
        print("so few seeds prove little; tllib-ancon demo --seeds 0 1 2 3 4 takes five")


def runs_of(config: DemoConfig) -> list[PlannedRun]:
    """Every method from a source model per seed; a run has one thread, so that its numbers depend on no other run."""
    out = Path(config.out)
    common = {
        "arch": "small_cnn",
        "image_size": digits.CROP,
        "scale": (0.5, 1.0),
        "no_hflip": True,
        "threads": 1,
        "workers": 0,
        "cache": str(out / "cache"),
        "quiet": True,
    }
    plan = BenchmarkPlan(
        table="demo",
        title="rendered digits -> handwritten digits",
        dataset="ImageList",
        pairs=(f"{digits.SOURCE}-{digits.TARGET}",),
        methods=METHODS,
        seeds=config.seeds,
        common=common,
        source={"erm": {"scratch": True, "epochs": config.source_epochs}},
        adapt={"epochs": config.epochs, "criterion": "infomax"},
    )
    return plan.runs(str(out / "data"), out)


def _summary(runs: Sequence[PlannedRun]) -> dict[str, Metrics]:
    """Mean accuracy (percent) and ECE (in [0, 1]) of each method's selected models, and the numbers of each seed."""
    per_seed: dict[str, list[Metrics]] = {method: [] for method in (SOURCE_ONLY, *METHODS)}
    for run in runs:
        if run.command == "adapt":
            result = RunDirectory(run.folder).result()
            method = run.settings["method"]
            per_seed[method].append(result["selected"])
            if method == "self-training":
                per_seed[SOURCE_ONLY].append(result["start"])
    summary = {}
    for method, scores in per_seed.items():
        numbers = [{name: score[name] for name in ("accuracy", "ece", "epoch")} for score in scores]
        means = {name: fmean(of_seed[name] for of_seed in numbers) for name in ("accuracy", "ece")}
        summary[method] = {**means, "per_seed": numbers}
    return summary


def _table(summary: Mapping[str, Metrics]) -> str:
    num_seeds = len(summary[SOURCE_ONLY]["per_seed"])
    lines = [
        "rendered digits -> handwritten digits, epoch selected by InfoMax; mean ± deviation over "
        f"{counted(num_seeds, 'seed')}",
        "",
        f"{'':13}  {'accuracy (%)':>12}  {'ECE (15 bins)':>13}",
    ]
    for method, numbers in summary.items():
        lines.append(f"{method:13}  {_spread(numbers, 'accuracy', 1):>12}  {_spread(numbers, 'ece', 3):>13}")
    return "\n".join([*lines, ""])


def _spread(numbers: Metrics, name: str, decimals: int) -> str:
    text = f"{numbers[name]:.{decimals}f}"
    values = [of_seed[name] for of_seed in numbers["per_seed"]]
    if len(values) > 1:
        text += f" ± {stdev(values):.{decimals}f}"
    return text
