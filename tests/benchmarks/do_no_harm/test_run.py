"""The commands of ``run.sh``, recorded instead of run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import recorded
from tllib_ancon.cli.main import parse
from tllib_ancon.paper import plan


def test_every_plan_is_run_and_all_runs_are_in_the_table(tmp_path: Path) -> None:
    made = recorded.commands("do_no_harm/run.sh", ["office31", "digits", "weights", "out", "--seeds", "0"], tmp_path)
    lists, *benchmarks, table = made
    assert lists[:4] == ["python", "-m", "benchmarks.do_no_harm.lists", "out/lists"]
    parsed = [parse(words[1:]) for words in benchmarks]
    assert [args.seeds for args in parsed] == [[0]] * 3
    assert {args.out for args in parsed} == set(table[3:5])
    settings = [pair for args in parsed for pair in plan.load(str(recorded.BENCHMARKS.parent / args.table)).pairs]
    assert len(settings) == len(set(settings)) == 10


def test_plans_with_one_folder_share_their_source_models() -> None:
    small, amazon = (
        plan.load(str(recorded.BENCHMARKS / "do_no_harm" / f"{name}.toml")) for name in ("office31", "amazon")
    )
    sources = [
        {run.name: run.settings for run in loaded.runs("ROOT", Path("OUT")) if run.command == "pretrain"}
        for loaded in (small, amazon)
    ]
    assert sources[1].items() <= sources[0].items()


@pytest.mark.parametrize("name", ["office31", "amazon", "digits", "digits_priors", "digits_references"])
def test_every_run_of_a_plan_is_accepted(name: str) -> None:
    for run in plan.load(str(recorded.BENCHMARKS / "do_no_harm" / f"{name}.toml")).runs("ROOT", Path("OUT")):
        assert run.config.epochs in (5, 10, 20)
