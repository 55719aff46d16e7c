"""The runs of a table of the paper: which are made, by which engine, and the record of those that failed."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tllib_ancon import methods
from tllib_ancon.config.settings import Flag
from tllib_ancon.config.types import Seed
from tllib_ancon.laboratory.engine import RECORD, Engine, EngineConfig, finished, make_all
from tllib_ancon.laboratory.local import LocalEngine, gpus_of_runs, visible_gpus
from tllib_ancon.laboratory.plan import BenchmarkPlan, PlannedRun, load, tables
from tllib_ancon.runs.files import lock_folder, write_json
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import say, showable


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
    from tllib_ancon.opening.images import open_by_settings

    if config.engine == "ray" and not config.print_commands:
        require(named("engine", "ray"), "ray", extra="ray")
    for method in config.methods:
        methods.settings(method)  # an error for an unknown one
    plan = load(config.table).select(config.methods, config.pairs, config.seeds)
    out = Path(config.out or f"runs/{Path(config.table).stem}")
    runs = plan.runs(config.root, out)
    for run in {run.settings.get("method"): run for run in runs}.values():
        run.config  # noqa: B018 - it is checked on construction
    if config.print_commands:
        print(*[showable(shlex.join(["tllib-ancon", *run.words])) for run in runs], sep="\n")
        return 0
    with _engine(config) as engine:
        for domain in plan.all_domains:
            open_by_settings(runs[0].config, [domain])
        if not config.dry_run:
            return _execute(plan, config.root, runs, out, engine)
    say(*_summary(plan, runs, out))
    return 0


def _engine(config: BenchmarkConfig) -> AbstractContextManager[Engine]:
    if config.engine == "local":
        gpus = gpus_of_runs(config, visible_gpus(), os.cpu_count() or 1)
        return nullcontext(LocalEngine(gpus, config.cpus_per_run))
    from tllib_ancon.laboratory.ray import connected

    return connected(config, config.root)


def _summary(plan: BenchmarkPlan, runs: Sequence[PlannedRun], out: Path) -> list[str]:
    done = len(runs) - len(_unfinished(runs, out))
    sources = sum(run.command == "pretrain" for run in runs)
    methods = " ".join(plan.methods)
    if plan.varied:
        methods += f", {len(plan.variants)} variants each"
    seeds = " ".join(map(str, plan.seeds))
    lines = [plan.title]
    lines.append(f"pairs    {' '.join(plan.pairs)}")
    lines.append(f"methods  {methods}")
    lines.append(f"seeds    {seeds}")
    lines.append(
        f"runs     {sources} source models and {len(runs) - sources} adaptations in {out}; {done} are finished"
    )
    lines += [f"note     {note}" for note in plan.notes]
    return lines


def _execute(plan: BenchmarkPlan, root: str, runs: Sequence[PlannedRun], out: Path, engine: Engine) -> int:
    record = {"table": plan.extends or plan.table, "root": root}
    out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out):
        say(*_summary(plan, runs, out), file=sys.stderr)
        write_json(out / RECORD, {**record, "failures": []})
        engine.check_shared(out)
        failures = make_all(_unfinished(runs, out), engine, out, partial(say, file=sys.stderr))
        entries = [{"run": run, "reason": reason} for run, reason in failures.items()]
        write_json(out / RECORD, {**record, "failures": entries})
    num_finished = len(runs) - len(_unfinished(runs, out))
    say(f"{num_finished} of {len(runs)} runs are finished in {out}")
    for run, reason in failures.items():
        say(f"failed: {run}: {reason}", file=sys.stderr)
    return 1 if failures else 0


def _unfinished(runs: Sequence[PlannedRun], out: Path) -> list[PlannedRun]:
    return [run for run in runs if not finished(run, out)]
