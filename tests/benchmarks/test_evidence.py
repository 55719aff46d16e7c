"""The plans of the evidence, and the commands of ``run.sh``, recorded instead of run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import recorded
from tllib_ancon.cli.main import parse
from tllib_ancon.paper import plan

PLANS = sorted((recorded.BENCHMARKS / "evidence").glob("*.toml"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_run_of_a_plan_is_accepted(path: Path) -> None:
    runs = list(plan.load(str(path)).runs("ROOT", Path("OUT")))
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        assert run.config.epochs > 0


def test_both_plans_of_one_folder_share_their_source_models_and_are_reported_apart(tmp_path: Path) -> None:
    runs = tmp_path / "out" / "runs" / "erm"
    for pair in ("A-D", "D-W", "D-A"):
        (runs / pair).mkdir(parents=True)
    words = ["office31", "weights", str(tmp_path / "out"), "--seeds", "0"]
    *benchmarks, small, amazon, six = recorded.commands("evidence/run.sh", words, tmp_path)
    parsed = [parse(words[1:]) for words in benchmarks]
    assert {args.out for args in parsed} == {str(tmp_path / "out" / "runs")}
    assert [args.seeds for args in parsed] == [[0], [0]]
    plans = [plan.load(str(recorded.BENCHMARKS.parent / args.table)) for args in parsed]
    sources = [
        {run.name: run.settings for run in loaded.runs("ROOT", Path("OUT")) if run.command == "pretrain"}
        for loaded in plans
    ]
    assert all(sources[0][name] == sources[1][name] for name in sources[0].keys() & sources[1].keys())
    assert [Path(word).name for word in small[2:] if "erm" in word] == ["A-D", "D-W"]
    assert [Path(word).name for word in amazon[2:] if "erm" in word] == ["D-A"]
    assert six == ["python", "-m", "benchmarks.evidence.six_pairs", str(runs)]
