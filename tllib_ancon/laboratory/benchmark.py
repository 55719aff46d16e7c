"""The runs of a table of the paper: which are made, and by which engine."""

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tllib_ancon.config.settings import Flag
from tllib_ancon.config.types import Seed
from tllib_ancon.laboratory.engine import Engine, EngineConfig, LocalEngine, make_all
from tllib_ancon.laboratory.plan import BenchmarkPlan, PlannedRun, load, tables
from tllib_ancon.runs.files import write_json
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import say, showable

RECORD = "benchmark.json"
"""In the folder of the runs: their table."""


class BenchmarkConfig(EngineConfig):
    """The runs to make, their table and the engine."""

    FLAG = Flag(group="options", common=True)

    table: Annotated[str, Flag(metavar="TABLE", group="positional arguments")] = Field(
        description=f"{', '.join(tables())}; or a plan of your own, FILE.toml"
    )
    root: Annotated[str, Flag(metavar="ROOT", group="positional arguments")]
    """folder of the dataset"""
    out: Annotated[str | None, Flag(metavar="DIR")] = None
    """folder of the run directories; by default runs/TABLE"""
    methods: Annotated[tuple[str, ...], Flag(metavar="METHOD")] = ()
    """methods to run; by default those of the plan"""
    pairs: Annotated[tuple[str, ...], Flag(metavar="PAIR")] = ()
    """pairs of domains to run: names, or patterns ('A-*', '*/5'); by default all"""
    seeds: tuple[Seed, ...] = ()
    """seeds to run; by default those of the plan, 0 1 2"""
    dry_run: bool = False
    """check the data, show the plan, and run nothing"""
    print_commands: bool = False
    """print the command of each run, in an order in which they can be made, and run nothing"""


def benchmark(config: BenchmarkConfig) -> int:
    """Make the runs of a plan, or show it."""
    if config.address is not None:
        require(named("address", config.address), "ray", extra="ray")
    plan = load(config.table).select(config.methods, config.pairs, config.seeds)
    out = Path(config.out or f"runs/{Path(config.table).stem}")
    runs = plan.runs(config.root, out)
    configs = [run.config for run in runs]  # their errors come before any run
    if config.print_commands:
        print(*[showable(shlex.join(["tllib-ancon", *run.words])) for run in runs], sep="\n")
        return 0
    _require_images(configs)
    if config.dry_run:
        say(*_summary(plan, runs, out))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    show = partial(say, file=sys.stderr)
    show(*_summary(plan, runs, out))
    write_json(out / RECORD, {"table": plan.extends or plan.table})
    failures = make_all(runs, _engine(config), show)
    say(f"{_num_finished(runs)} of {len(runs)} runs are finished in {out}")
    for run, reason in failures.items():
        show(f"failed: {run}: {reason}")
    return 1 if failures else 0


def _require_images(configs: Sequence[Any]) -> None:
    """Raise an error for a domain without images."""
    from tllib_ancon.opening.images import open_by_settings

    domains: set[str] = set()
    for config in configs:
        domains.update(config.source or (), config.target or ())
    for domain in sorted(domains):
        open_by_settings(configs[0], [domain])


def _engine(config: BenchmarkConfig) -> Engine:
    if config.address is None:
        return LocalEngine(config)
    from tllib_ancon.laboratory.ray import RayEngine

    return RayEngine(config)


def _summary(plan: BenchmarkPlan, runs: Sequence[PlannedRun], out: Path) -> list[str]:
    num_sources = sum(run.command == "pretrain" for run in runs)
    return [
        plan.title,
        f"pairs    {' '.join(plan.pairs)}",
        f"methods  {' '.join(plan.methods)}",
        f"seeds    {' '.join(map(str, plan.seeds))}",
        f"runs     {num_sources} source models and {len(runs) - num_sources} adaptations in {out}; "
        f"{_num_finished(runs)} are finished",
        *[f"note     {note}" for note in plan.notes],
    ]


def _num_finished(runs: Sequence[PlannedRun]) -> int:
    return sum(run.finished for run in runs)
