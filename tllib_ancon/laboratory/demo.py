"""The demo: a plan on digits that come with packages, and what comes out over its seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from tllib_ancon.laboratory import digits
from tllib_ancon.laboratory.engine import EngineConfig, LocalEngine, make_all
from tllib_ancon.laboratory.plan import BenchmarkPlan, PlannedRun
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import counted
from tllib_ancon.runtime.types import Metrics, Show

SOURCE_ONLY = "source-only"
METHODS = ("adabn", "self-training", "elr", "ancon", "ancon-auto")


def runs_of(out: Path, seeds: tuple[int, ...], source_epochs: int, epochs: int) -> list[PlannedRun]:
    """Every method from a source model per seed; a run has one thread, so that its numbers depend on no other run."""
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
        seeds=seeds,
        common=common,
        source={"erm": {"scratch": True, "epochs": source_epochs}},
        adapt={"epochs": epochs, "criterion": "infomax"},
    )
    return plan.runs(str(out / "data"), out)


def make_demo(out: Path, runs: Sequence[PlannedRun], jobs: int | None, say: Show) -> None:
    """Make every run that is not finished.

    After a signal (:class:`~tllib_ancon.runtime.errors.Interrupted`) the same command continues.
    """
    digits.write_demo_domains(out / "data")
    say(f"{len(runs)} runs on digits that come with the packages, about ten seconds of a core each")
    for run, reason in make_all(runs, LocalEngine(EngineConfig(jobs=jobs)), out, say).items():
        raise UserError(f"{run}: {reason}", "give the same command again to try it once more")


def summarize(out: Path, runs: Sequence[PlannedRun]) -> dict[str, Metrics]:
    """Mean accuracy (percent) and ECE (in [0, 1]) of each method's selected models, and the numbers of each seed."""
    per_seed: dict[str, list[Metrics]] = {method: [] for method in (SOURCE_ONLY, *METHODS)}
    for run in runs:
        if run.command == "adapt":
            result = RunDirectory(out / run.name).result()
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


def table(summary: Mapping[str, Metrics]) -> str:
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
