"""The demo writes the mean accuracy and calibration error of each method over its seeds, without a download; its
processes end with it."""

import psutil
import pytest

from tests.support.domains_on_disk import write_domain
from tests.support.in_this_process import runs_here
from tests.support.json_files import read_json
from tests.support.killable import start, wait_for
from tllib_ancon.cli.main import main

SHORT = ["--source-epochs", "1", "--epochs", "1", "--jobs", "1"]


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A folder with a few pictures in place of the digits, where a download fails: nothing answers for its proxy."""
    for protocol in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(protocol, "http://127.0.0.1:9")
    for seed, name in enumerate(("rendered", "handwritten")):
        write_domain(tmp_path / "data", name, 96, seed=seed, side=32)
    return tmp_path


def test_the_summary_has_means_over_the_seeds(out, capsys):
    with runs_here() as made:
        assert main(["demo", "--out", str(out), "--seeds", "0", "1", *SHORT]) == 0
        assert len(made) == 12
        assert main(["demo", "--out", str(out), "--seeds", "0", "1", *SHORT]) == 0
        assert len(made) == 12
    shown = capsys.readouterr().out
    summary = read_json(out / "summary.json")
    assert summary.pop("seconds") >= 0
    assert {"source-only", "adabn", "self-training", "ancon", "ancon-auto"} <= summary.keys()
    for method, row in summary.items():
        first, second = row["per_seed"]
        for name, most in (("accuracy", 100), ("ece", 1)):
            assert 0 <= row[name] <= most
            assert row[name] == pytest.approx((first[name] + second[name]) / 2)
        assert f"\n{method:13}  " in shown
        assert f"{row['accuracy']:.1f} ± {abs(first['accuracy'] - second['accuracy']) / 2**0.5:.1f}" in shown


def test_its_processes_end_with_it(out):
    words = ["demo", "--out", str(out), "--jobs", "1", "--source-epochs", "100000"]
    demo = start(words, errors=out / "errors.txt")
    config = out / "source" / "erm-rendered-seed0" / "config.json"
    wait_for(lambda: config.is_file() or demo.exitcode is not None)
    started = psutil.Process(demo.pid).children(recursive=True)
    demo.kill()
    demo.join()
    psutil.wait_procs(started)
