"""Every plan of the benchmarks is accepted, and the script of Office-31 makes the runs and reports of its plans."""

from pathlib import Path

import pytest

from tests.benchmarks.recorded import BENCHMARKS, commands
from tllib_ancon.cli.main import parse
from tllib_ancon.laboratory import plan

PLANS = sorted((BENCHMARKS / "tables").glob("*.toml"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_run_of_a_plan_is_accepted(path):
    runs = list(plan.load(str(path)).runs("ROOT", Path("OUT")))
    assert len({run.name for run in runs}) == len(runs)
    assert all(run.config.epochs > 0 for run in runs)


def test_both_plans_of_one_folder_are_reported_apart(tmp_path):
    for pair in ("A-D", "D-W", "D-A"):
        (tmp_path / "out/runs/erm" / pair).mkdir(parents=True)
    words = ["office31", "weights", str(tmp_path / "out"), "--seeds", "0"]
    *benchmarks, small, amazon = commands("tables/office31.sh", words, tmp_path)
    parsed = [parse(words[1:]) for words in benchmarks]
    for args in parsed:
        assert args.out == str(tmp_path / "out" / "runs")
        assert args.seeds == [0]
    for report, pairs in ((small, ["A-D", "D-W"]), (amazon, ["D-A"])):
        assert [Path(word).name for word in report[2:] if "erm" in word] == pairs


def test_plans_with_one_folder_share_their_source_models():
    names = ("tables/office31", "tables/office31_to_amazon")
    plans = [plan.load(str(BENCHMARKS / f"{name}.toml")).runs("ROOT", Path("OUT")) for name in names]
    one, other = ({run.name: run.settings for run in runs if run.command == "pretrain"} for runs in plans)
    assert one.keys() & other.keys()
    for name in one.keys() & other.keys():
        assert one[name] == other[name]
