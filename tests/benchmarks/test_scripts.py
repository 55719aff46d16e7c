"""The scripts of ``benchmarks/``: exact commands, nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tllib_ancon.cli.main import parse
from tllib_ancon.paper import plan

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks"
OWN_PLANS = {"imagenet_c_stand_in/run.sh": "benchmarks/imagenet_c_stand_in/plan.toml"}


def commands(script: Path) -> list[list[str]]:
    """Those of this package."""
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "set -e"
    words = [shlex.split(line) for line in lines[1:]]
    return [line[1:] for line in words if line[0] == "tllib-ancon"]


def plans() -> dict[str, str]:
    """Script -> its table."""
    return {f"{table}.sh": table for table in set(plan.tables()) - {"selection"}} | OWN_PLANS


@pytest.mark.parametrize("script", sorted(plans()))
def test_a_script_makes_the_runs_of_its_table_and_reports_them(script: str) -> None:
    benchmark, *reports = commands(SCRIPTS / script)
    args = parse(benchmark)
    assert args.table == plans()[script]
    assert plan.load(str(SCRIPTS.parent / args.table) if "/" in args.table else args.table).pairs
    assert args.out.startswith("logs/")
    assert reports
    for report in reports:
        assert parse(report).folders == [args.out]


def test_every_script_belongs_to_a_table() -> None:
    assert {path.name for path in SCRIPTS.glob("*.sh")} <= set(plans())
