"""The scripts of ``benchmarks/``: exact commands, nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tllib_ancon.cli.main import parse
from tllib_ancon.paper import plan

SCRIPTS = Path(__file__).resolve().parents[1] / "benchmarks"


def commands(script: Path) -> list[list[str]]:
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "set -e"
    return [shlex.split(line) for line in lines[1:]]


@pytest.mark.parametrize("table", sorted(set(plan.tables()) - {"selection"}))
def test_a_script_makes_the_runs_of_its_table_and_reports_them(table: str) -> None:
    benchmark, *reports = commands(SCRIPTS / f"{table}.sh")
    args = parse(benchmark[1:])
    assert (args.table + "-stand-in" * args.stand_in, args.out) == (table, f"logs/{table}")
    for report in reports:
        assert parse(report[1:]).folders == [args.out]


def test_every_script_belongs_to_a_table() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.sh")} <= set(plan.tables())
