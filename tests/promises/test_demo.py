"""The demo computes means and paired differences over its seeds; ``--overwrite`` makes every run again."""

import signal

import psutil
import pytest

from tests.support.domains_on_disk import write_domain
from tests.support.in_this_process import runs_here
from tests.support.json_files import read_json
from tests.support.killable import start, wait_for
from tllib_ancon.cli.main import main
from tllib_ancon.laboratory.demo import Demo, summarize, table
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runtime.errors import Interrupted

RUNS = {
    "source-only": [(60.0, 0.2), (50.0, 0.3), (55.0, 0.1)],
    "self-training": [(70.0, 0.2), (72.0, 0.1), (77.0, 0.3)],
    "ancon": [(74.0, 0.1), (73.0, 0.1), (84.0, 0.1)],
}


def numbers(seeds):
    results = {}
    for method, runs in RUNS.items():
        results[method] = [{"accuracy": accuracy, "ece": ece, "epoch": 3} for accuracy, ece in runs[:seeds]]
    return results


def test_means_deviations_and_paired_differences():
    row = summarize(numbers(3))["ancon"]
    assert row["accuracy"] == pytest.approx(77.0)
    assert row["accuracy_deviation"] == pytest.approx(((9 + 16 + 49) / 2) ** 0.5)
    assert row["accuracy_difference"] == pytest.approx((4 + 1 + 7) / 3)
    deviation = ((0 + 9 + 9) / 2) ** 0.5
    assert row["accuracy_standard_error"] == pytest.approx(deviation / 3**0.5)
    assert row["ece_difference"] == pytest.approx(-0.1)
    assert [run["accuracy"] for run in row["per_seed"]] == [74.0, 73.0, 84.0]


def test_one_seed_has_no_spread():
    summary = summarize(numbers(1))
    assert summary["ancon"]["accuracy_deviation"] is None
    assert "±" not in table(summary, "")


def test_a_demo_with_overwrite_makes_every_run_again(tmp_path, monkeypatch):
    made = []

    def run_all(self, say):
        made[:] = [not RunDirectory(self.out / run.name).finished for run in self.runs()]
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(Demo, "run", run_all)
    monkeypatch.setattr("tllib_ancon.laboratory.digits.write_demo_domains", lambda root: None)
    for run in Demo(tmp_path, (0,), 1, 1, 1).runs():
        (tmp_path / run.name).mkdir(parents=True)
        (tmp_path / run.name / "result.json").write_text("{}")
    words = ["demo", "--out", str(tmp_path), "--seeds", "0"]
    for more, anew in (([], False), (["--overwrite"], True)):
        assert main([*words, *more]) == 128 + signal.SIGINT
        assert set(made) == {anew}


def test_the_summary_has_accuracy_and_ece_of_each_method(tmp_path):
    for seed, name in enumerate(("rendered", "handwritten")):
        write_domain(tmp_path / "data", name, 96, seed=seed, side=32)
    short = ["--seeds", "0", "--source-epochs", "1", "--epochs", "1", "--jobs", "1", "--quiet"]
    with runs_here():
        assert main(["demo", "--out", str(tmp_path), *short]) == 0
    summary = read_json(tmp_path / "summary.json")
    assert summary.pop("seconds") > 0
    assert {"source-only", "self-training", "ancon", "ancon-auto"} <= summary.keys()
    for row in summary.values():
        (run,) = row["per_seed"]
        assert row["accuracy"] == run["accuracy"]
        assert 0 <= row["accuracy"] <= 100
        assert 0 <= row["ece"] <= 1


@pytest.mark.parametrize(("end", "status"), [("terminate", 128 + signal.SIGTERM), ("kill", -signal.SIGKILL)])
def test_its_processes_end_with_it(tmp_path, end, status):
    for seed, name in enumerate(("rendered", "handwritten")):
        write_domain(tmp_path / "data", name, 96, seed=seed, side=32)
    words = ["demo", "--out", str(tmp_path), "--jobs", "1", "--source-epochs", "100000"]
    demo = start(words, errors=tmp_path / "errors.txt")
    wait_for(lambda: (tmp_path / "source-seed0" / "config.json").is_file() or demo.exitcode is not None)
    started = psutil.Process(demo.pid).children(recursive=True)
    getattr(demo, end)()
    demo.join()
    assert demo.exitcode == status
    psutil.wait_procs(started)
    if end == "kill":
        return
    *_, first, second = (tmp_path / "errors.txt").read_text().splitlines()
    assert first == "the running commands end their step; once more ends them at once"
    assert "stopped by SIGTERM while runs were made; the same command continues" in second
