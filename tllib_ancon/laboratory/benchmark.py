"""The runs of a table of the paper: which are made, by which engine, and the record of those that failed."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tllib_ancon import methods
from tllib_ancon.errors import UserError
from tllib_ancon.laboratory import plan as plans
from tllib_ancon.laboratory.local import RECORD, EngineConfig, Local, environments, finished, visible_gpus
from tllib_ancon.laboratory.plan import Plan, Run
from tllib_ancon.settings import Flag
from tllib_ancon.shared_settings import Seed
from tllib_ancon.text import say, showable
from tllib_ancon.training.files import lock_folder, write_json


class BenchmarkConfig(EngineConfig):
    """The runs to make, their table and the engine."""

    FLAG = Flag(group="options", common=True)

    table: Annotated[str, Flag(metavar="TABLE", group="positional arguments")] = Field(
        description=f"{', '.join(plans.tables())}; or a plan of your own, FILE.toml"
    )
    root: Annotated[str, Flag(metavar="ROOT", group="positional arguments")]
    """folder of the dataset"""
    out: Annotated[str | None, Flag(metavar="DIR")] = None
    """folder of the run directories; by default runs/TABLE"""
    methods: Annotated[tuple[str, ...], Flag(metavar="METHOD")] = ()
    """methods to run; by default those of the plan"""
    pairs: Annotated[tuple[str, ...], Flag(metavar="PAIR")] = ()
    """pairs of domains to run: names, patterns ('A-*', '*/5') or groups of the plan; by default all"""
    seeds: tuple[Seed, ...] = ()
    """seeds to run; by default those of the plan, 0 1 2"""
    dry_run: bool = False
    """check the data, show the plan, and run nothing"""
    print_commands: bool = False
    """print the command of each run, in an order in which they can be made, and run nothing"""


def benchmark(config: BenchmarkConfig) -> int:
    from tllib_ancon.training.inputs import open_images

    for method in config.methods:
        methods.settings(method)
    plan = plans.load(config.table).select(config.methods, config.pairs, config.seeds)
    out = Path(config.out or f"runs/{Path(config.table).stem}")
    runs = plan.runs(config.root, out)
    for run in {run.settings.get("method"): run for run in runs}.values():
        run.config  # noqa: B018 - it is checked on construction
    if config.print_commands:
        print(*(showable(shlex.join(["tllib-ancon", *run.words])) for run in runs), sep="\n")
        return 0
    with started(config) as engine:
        for code in sorted({code for pair in plan.pairs for code in plan.domains(pair) if code is not None}):
            open_images(runs[0].config, [code])
        if not config.dry_run:
            return execute(plan, config.root, runs, out, engine)
    say(*summary(plan, runs, out))
    return 0


def started(config: EngineConfig) -> AbstractContextManager[Any]:
    if config.engine == "local":
        return nullcontext(Local(environments(config, visible_gpus(), os.cpu_count() or 1)))
    try:
        from tllib_ancon.laboratory.ray import connected
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UserError("`engine=ray` needs Ray: pip install ray") from None
    return connected(config)


def summary(plan: Plan, runs: Sequence[Run], out: Path) -> list[str]:
    done = sum(finished(run, out) for run in runs)
    sources = sum(run.command == "pretrain" for run in runs)
    variants = f", {len(plan.variants)} variants each" if plan.varied else ""
    return [
        plan.title,
        f"pairs    {' '.join(plan.pairs)}",
        f"methods  {' '.join(plan.methods)}{variants}",
        f"seeds    {' '.join(map(str, plan.seeds))}",
        f"runs     {sources} source models and {len(runs) - sources} adaptations in {out}; {done} are finished",
        *(f"note     {note}" for note in plan.notes),
    ]


def execute(plan: Plan, root: str, runs: Sequence[Run], out: Path, engine: Any) -> int:
    def record(failures: Mapping[str, str]) -> None:
        listed = [{"run": run, "reason": reason} for run, reason in failures.items()]
        write_json(out / RECORD, {"table": plan.extends or plan.table, "root": root, "failures": listed})

    out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out):
        say(*summary(plan, runs, out), file=sys.stderr)
        record({})
        todo = [run for run in runs if not finished(run, out)]
        failures = engine.execute(todo, root, out, partial(say, file=sys.stderr))
        record(failures)
    say(f"{sum(finished(run, out) for run in runs)} of {len(runs)} runs are finished in {out}")
    for run, reason in failures.items():
        say(f"failed: {run}: {reason}", file=sys.stderr)
    return 1 if failures else 0
