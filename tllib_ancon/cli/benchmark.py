"""``tllib-ancon benchmark``: the runs of a table of the paper."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import Flags, checked, flag, spelled
from tllib_ancon.cli.parser import Parser
from tllib_ancon.errors import UserError
from tllib_ancon.paper import engines
from tllib_ancon.paper import plan as plans
from tllib_ancon.paper.driver import RECORD, Failure
from tllib_ancon.paper.engines import Engine, EngineConfig
from tllib_ancon.paper.plan import Overrides, Plan, Run
from tllib_ancon.settings import settings_of, types_of


def add_arguments(parser: Parser) -> None:
    tables = ", ".join(plans.tables())
    parser.add_argument("table", metavar="TABLE", help=f"{tables}; or a plan of your own, FILE.toml (needed)")
    parser.add_argument("root", metavar="ROOT", help="folder of the dataset (needed)")
    parser.add_argument("--out", metavar="DIR", help="folder of the run directories (default: runs/TABLE)")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="methods to run (default: those of the plan)")
    parser.add_argument(
        "--pairs",
        nargs="+",
        metavar="PAIR",
        help="pairs of domains to run: names, patterns ('A-*', '*/5') or groups of the plan (default: all)",
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", metavar="N", help="seeds to run (at least 0; default: those of the plan, 0 1 2)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the data, show the plan and estimate its time, and run nothing (default: off)",
    )
    parser.add_argument(
        "--print-commands",
        action="store_true",
        help="print the command of each run, in an order in which they can be made, and run nothing (default: off)",
    )
    _engine_flags().add(parser)
    for flags in _override_flags().values():
        flags.add(parser, common=False)
    parser.usage = "%(prog)s TABLE ROOT [flags]"
    parser.epilog = (
        "Every setting of a run is a flag as well and wins over the plan: a bare one for the source models and for "
        "what both stages share, --adapt-X for the adaptations, --both-X for both stages. A flag that is left out "
        "has the plan's value, or where the plan has none the default that is shown."
    )


def run(args: argparse.Namespace) -> int:
    with checked(_engine_flags()):
        engine_config = EngineConfig(**_engine_flags().given(args))
    plan, root = _plan(args), args.root
    out = Path(args.out or f"runs/{Path(args.table).stem}")
    overrides = _overrides(args, bool(plan.source))
    runs = plan.runs(root, out, overrides)
    _check(runs, args)
    if args.print_commands:
        print("\n".join(shlex.join(["tllib-ancon", *run.words]) for run in runs))
        return 0
    with checked(_engine_flags()), engines.started(engine_config) as engine:
        sizes = _sizes(plan, root, runs)
        if args.dry_run:
            print(_summary(plan, runs, out))
            print(_estimate(runs, sizes, out, engine.at_a_time))
            return 0
        return _execute(plan, root, runs, overrides, out, engine)


def _engine_flags() -> Flags:
    return Flags(settings_of(EngineConfig), types_of(EngineConfig))


def _plan(args: argparse.Namespace) -> Plan:
    from tllib_ancon import methods

    for method in args.methods or ():
        methods.settings(method)
    return plans.load(args.table).select(args.methods, args.pairs, args.seeds)


DECIDED = ("root", "source", "target", "data", "method", "seed", "log", "overwrite", "checkpoint", "override")
"""What the plan decides for each run."""


def _override_flags() -> dict[str, Flags]:
    """Settings in place of the plan's: bare flags of the first stage and of what both share, ``--adapt-X`` of the
    second, ``--both-X`` of the two."""
    return {
        "source": stages.pretrain_flags().without(*DECIDED),
        "adapt": stages.second_stage_flags().without(*DECIDED),
        "both": stages.both_flags().without(*DECIDED),
    }


def _overrides(args: argparse.Namespace, trains: bool) -> Overrides:
    """The settings that were given, by stage; ``trains``: the plan has a first stage."""
    flags = _override_flags()
    first, second, both = (flags[name].given(args) for name in ("source", "adapt", "both"))
    shared = stages.shared(first)
    if trains:
        shared.pop("pretrained_weights", None)
    return Overrides({**both, **first}, {**shared, **both, **second})


def _check(runs: Sequence[Run], args: argparse.Namespace) -> None:
    """Refuse now what a run of any method would refuse, and what none reads, by the flag that was given."""
    flags = _override_flags()
    for command, groups in (("pretrain", ("source", "both")), ("adapt", ("source", "both", "adapt"))):
        of_stage = {run.settings.get("method"): run for run in reversed(runs) if run.command == command}
        named = {name: flags[group].flag(name) for group in groups for name in flags[group].given(args)}
        for run in of_stage.values():
            try:
                run.config  # noqa: B018 - it is checked on construction
            except UserError as error:
                raise UserError(spelled(str(error), _Named(named).flag)) from error
    for name in flags["adapt"].given(args):
        if not any(name in run.settings for run in runs if run.command == "adapt"):
            raise UserError(f"{flags['adapt'].flag(name)} is an option of no method of these runs; leave it out")


@dataclass(frozen=True)
class _Named:
    """The flags by which settings were given."""

    given: Mapping[str, str]

    def flag(self, name: str) -> str:
        return self.given.get(name) or flag(name)


def _sizes(plan: Plan, root: str, runs: Sequence[Run]) -> dict[str, int]:
    """Images of each domain.

    Raises:
        UserError: a domain that is missing, or that lacks images it lists (how many, which first)
    """
    from tllib_ancon.training.inputs import open_images

    config = runs[0].config
    codes = {code for pair in plan.pairs for code in plan.domains(pair) if code is not None}
    sizes = {}
    for code in sorted(codes):
        sizes[code] = len(open_images(config, [code]))
    return sizes


def _summary(plan: Plan, runs: Sequence[Run], out: Path) -> str:
    from tllib_ancon.paper.driver import finished

    done = sum(finished(run, out) for run in runs)
    sources = sum(run.command == "pretrain" for run in runs)
    return "\n".join(
        [
            plan.title,
            f"pairs    {' '.join(plan.pairs)}",
            f"methods  {' '.join(plan.methods)}" + (f", {len(plan.variants)} variants each" if plan.varied else ""),
            f"seeds    {' '.join(map(str, plan.seeds))}",
            f"runs     {sources} source models and {len(runs) - sources} adaptations in {out}; {done} are finished",
            *(f"note     {note}" for note in plan.notes),
        ]
    )


def _estimate(runs: Sequence[Run], sizes: dict[str, int], out: Path, jobs: int) -> str:
    from tllib_ancon.paper.driver import finished
    from tllib_ancon.paper.estimate import hours, images_of, measured_speed, recorded_speed

    todo = [run for run in runs if not finished(run, out)]
    if not todo:
        return "time     nothing is left to run"
    speed, origin = recorded_speed(out), "recorded by runs in the output folder"
    if speed is None:
        speed, origin = measured_speed(todo[-1].config), "measured now on this machine, without reading images"
    images = sum(images_of(run.config, sizes) for run in todo)
    return f"time     about {hours(images / speed / jobs)} at {speed:.0f} images/s, {origin}, with {jobs} at a time"


def _execute(plan: Plan, root: str, runs: Sequence[Run], overrides: Overrides, out: Path, engine: Engine) -> int:
    from tllib_ancon.paper.driver import finished
    from tllib_ancon.training.lock import FolderLock

    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(out)
    except OSError as error:
        raise UserError(f"the folder {out} of the runs cannot be made ({error.strerror}); choose another") from error
    print(_summary(plan, runs, out), file=sys.stderr)
    record = {"table": plan.table, "root": root, "overrides": asdict(overrides)}
    try:
        _write_record(out, record, [])
        failures = engine.execute(runs, root, out, lambda text: print(text, file=sys.stderr))
        _write_record(out, record, failures)
    finally:
        lock.release()
    print(f"{sum(finished(run, out) for run in runs)} of {len(runs)} runs are finished in {out}")
    for failure in failures:
        print(f"failed: {failure.run}: {failure.reason}", file=sys.stderr)
    return 1 if failures else 0


def _write_record(out: Path, record: Mapping[str, Any], failures: Sequence[Failure]) -> None:
    from tllib_ancon.training.files import write_whole

    content = (json.dumps({**record, "failures": list(map(asdict, failures))}, indent=2) + "\n").encode()
    write_whole(out / RECORD, lambda file: file.write(content))
