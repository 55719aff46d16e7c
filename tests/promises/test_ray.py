"""Runs on a real Ray cluster of two nodes equal those of one machine, also where a node is lost."""

import os
import signal
import sys
import threading

import pytest

from tests.support.domains_on_disk import small_arguments
from tests.support.in_this_process import Here
from tests.support.json_files import read_json
from tests.support.killable import wait_for
from tests.support.outcomes import differences, outcome
from tests.support.refusals import one_line
from tllib_ancon.cli.commands import COMMANDS
from tllib_ancon.cli.main import parser_of
from tllib_ancon.laboratory.engine import LOG, EngineConfig, make_all
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import Interrupted

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
from tllib_ancon.laboratory.ray import RayEngine  # noqa: E402

METHODS = ("ancon", "gce+elr")
pytestmark = pytest.mark.timeout(1800)
"""Seconds of a test: longer than all that it waits for, for a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def cluster():
    """Its first node has one CPU; a test adds the second. It ignores SIGINT, as what a script starts in the background
    does. It notices a lost node in seconds, loses none that answers slowly on a busy machine, and stops no run because
    other tests fill the memory."""
    from ray.cluster_utils import Cluster

    settings = {
        "health_check_period_ms": 500,
        "health_check_timeout_ms": 300_000,
        "memory_monitor_refresh_ms": 0,
        "worker_niceness": 0,  # 15 by default, with which a run waits for all else that the machine does
    }
    head = {"num_cpus": 1, "node_name": "first", "include_dashboard": False, "_system_config": settings}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        made = Cluster(initialize_head=True, head_node_args=head)
        signal.signal(signal.SIGINT, interrupted)
        yield made
        made.shutdown()


def engine(cluster, **settings):
    return RayEngine(EngineConfig(address=cluster.address, **settings))


def tiny(command, domains):
    words = [*small_arguments(domains), "--epochs", "1"]
    return COMMANDS[command].settings_in(parser_of(command).parsed(words))


def source(domains, out, seed, **settings):
    name = f"source/erm-bright-seed{seed}"
    return PlannedRun(name, "pretrain", {**tiny("pretrain", domains), "seed": seed, "log": str(out / name), **settings})


def adaptation(domains, out, start, method):
    seed = start.settings["seed"]
    name = f"erm/bright-dark/{method}-seed{seed}"
    checkpoint = str(out / start.name / "checkpoints" / "best.pth")
    own = {"target": ("dark",), "method": method, "seed": seed, "checkpoint": checkpoint, "log": str(out / name)}
    return PlannedRun(name, "adapt", {**tiny("adapt", domains), **own}, start.name)


def table(domains, out):
    """A source model and two adaptations."""
    out.mkdir()
    start = source(domains, out, 0)
    return [start, *(adaptation(domains, out, start, method) for method in METHODS)]


def test_a_node_is_lost_and_all_runs_finish_as_on_one_machine(cluster, domains, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # of this process; a run has one thread, whichever engine makes it
    second = cluster.add_node(num_cpus=1, node_name="second")
    runs = table(domains, tmp_path / "ray")
    logs = [run.folder / LOG for run in runs[1:]]

    def lose_the_second_node():
        """When both adaptations have begun: each node has one CPU and makes one of them."""
        wait_for(lambda: all(log.is_file() for log in logs))
        cluster.remove_node(second, allow_graceful=False)

    lost = threading.Thread(target=lose_the_second_node)
    lost.start()
    assert make_all(runs, engine(cluster), print) == {}
    lost.join()
    assert all(run.finished for run in runs)

    assert make_all(table(domains, tmp_path / "local"), Here(), print) == {}
    for run in runs:
        there = tmp_path / "ray" / run.name
        expected = outcome(tmp_path / "local" / run.name, "checkpoints/*.pth", "metrics.jsonl")
        found = outcome(there, "checkpoints/*.pth", "metrics.jsonl")
        assert {"checkpoints/best.pth", "checkpoints/latest.pth", "metrics.jsonl"} == found.keys()
        assert differences(expected, found) == []
        assert read_json(there / "config.json")["threads"] == 1


def test_sigterm_reaches_the_commands(cluster, domains, tmp_path):
    run = source(domains, tmp_path, 0, epochs=100_000)
    metrics = tmp_path / run.name / "metrics.jsonl"

    def terminate_in_the_middle():
        try:
            wait_for(lambda: metrics.is_file() and len(metrics.read_text().splitlines()) > 2)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate_in_the_middle).start()
    with pytest.raises(Interrupted):
        make_all([run], engine(cluster), print)
    assert "stopped by SIGINT in epoch" in (tmp_path / run.name / LOG).read_text()
    assert len(metrics.read_text().splitlines()) > 2


def test_what_no_cluster_can_do(cluster):
    with one_line("`cpus_per_run` 64: no node of the cluster has as many for a run; give at most"):
        engine(cluster, cpus_per_run=64)
    ray.shutdown()
    with one_line("`address` nonsense: no cluster answers"):
        RayEngine(EngineConfig(address="nonsense"))
