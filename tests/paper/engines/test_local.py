from __future__ import annotations

import os
from pathlib import Path

import pytest

from tllib_ancon.errors import UserError
from tllib_ancon.paper import driver
from tllib_ancon.paper.engines import EngineConfig, runs_on, started
from tllib_ancon.paper.engines.local import Local, shares, visible_gpus
from tllib_ancon.paper.plan import Run

EIGHT = [str(number) for number in range(8)]


def gpus(found: list[dict[str, str]]) -> list[str]:
    return [share["CUDA_VISIBLE_DEVICES"] for share in found]


@pytest.mark.parametrize(
    ("settings", "visible", "expected"),
    [
        ({}, EIGHT, EIGHT),
        ({"jobs": 3}, EIGHT, EIGHT[:3]),
        ({"gpus_per_run": 2}, EIGHT, ["0,1", "2,3", "4,5", "6,7"]),
        ({"gpus_per_run": 3}, EIGHT, ["0,1,2", "3,4,5"]),
        ({"gpus_per_run": 0.5}, ["0", "1"], ["0", "1", "0", "1"]),
        ({"gpus_per_run": 0.5, "jobs": 2}, ["0", "1"], ["0", "1"]),
        ({"gpus_per_run": 0.3}, ["0"], ["0"] * 3),
        ({"jobs": 4}, ["0"], ["0"] * 4),
        ({"jobs": 5}, ["0", "1"], ["0", "1", "0", "1", "0"]),
        ({"gpus_per_run": 2}, ["GPU-a", "GPU-b", "GPU-c"], ["GPU-a,GPU-b"]),
    ],
)
def test_each_run_has_gpus_of_its_own(settings, visible: list[str], expected: list[str]) -> None:
    assert gpus(shares(EngineConfig(**settings), visible, 16, {})) == expected


def test_a_run_has_its_share_of_threads() -> None:
    threads = [share["OMP_NUM_THREADS"] for share in shares(EngineConfig(), EIGHT, 20, {})]
    assert threads == ["2"] * 8
    assert shares(EngineConfig(), EIGHT, 2, {})[0]["OMP_NUM_THREADS"] == "1"
    assert shares(EngineConfig(cpus_per_run=5), EIGHT, 20, {})[0]["OMP_NUM_THREADS"] == "5"
    assert "OMP_NUM_THREADS" not in shares(EngineConfig(), EIGHT, 20, {"OMP_NUM_THREADS": "3"})[0]
    assert "OMP_NUM_THREADS" not in shares(EngineConfig(jobs=1), EIGHT, 20, {})[0]


def test_without_a_gpu_nothing_is_said_to_a_run() -> None:
    assert shares(EngineConfig(), [], 16, {}) == [{}]
    assert shares(EngineConfig(jobs=3), [], 16, {}) == [{}] * 3
    assert shares(EngineConfig(jobs=2, cpus_per_run=1), [], 16, {}) == [{"OMP_NUM_THREADS": "1"}] * 2


def test_runs_can_be_kept_off_the_gpus() -> None:
    assert gpus(shares(EngineConfig(gpus_per_run=0, jobs=2), EIGHT, 16, {})) == ["", ""]


@pytest.mark.parametrize(
    ("settings", "visible", "message"),
    [
        ({"gpus_per_run": 1}, [], "`gpus_per_run` 1: a run needs as many, and this machine has 0"),
        ({"gpus_per_run": 9}, EIGHT, "`gpus_per_run` 9: a run needs as many, and this machine has 8"),
        ({"gpus_per_run": 2, "jobs": 5}, EIGHT, "`gpus_per_run` 2: each of 5 runs at a time needs as many"),
    ],
)
def test_more_gpus_than_there_are(settings, visible: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        shares(EngineConfig(**settings), visible, 16, {})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jobs": 0}, "`jobs` must be at least 1"),
        ({"gpus_per_run": 1.5}, "a whole number or below 1, got 1.5"),
        ({"gpus_per_run": float("nan")}, "`gpus_per_run` must be at least 0"),
        ({"gpus_per_run": float("inf")}, "`gpus_per_run` must be at least 0"),
        ({"gpus_per_run": -1}, "`gpus_per_run` must be at least 0"),
        ({"cpus_per_run": 0}, "`cpus_per_run` must be at least 1"),
        ({"engine": "rey"}, "did you mean 'ray'"),
        ({"engine": "ray", "jobs": 2}, "`jobs` is for `engine=local`"),
        ({"address": "auto"}, "`address` auto needs `engine=ray`"),
    ],
)
def test_settings_that_are_refused(settings, message: str) -> None:
    with pytest.raises(UserError, match=message):
        EngineConfig(**settings)


@pytest.mark.parametrize(
    ("count", "per_run", "runs"),
    [(8, 1, 8), (8, 3, 2), (8, 9, 0), (2, 0.5, 4), (1, 0.1, 10), (1, 0.7, 1), (3, 0.4, 6), (0, 0.5, 0)],
)
def test_a_share_of_a_gpu_is_of_one_gpu(count: int, per_run: float, runs: int) -> None:
    assert runs_on(count, per_run) == runs


def test_the_gpus_of_this_process_have_the_names_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-b,9")
    assert visible_gpus() == ["5", "GPU-b"]


def test_a_share_is_given_to_one_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_use: list[str] = []
    seen: list[str] = []

    class Running:
        def __init__(self, gpu: str):
            self.gpu = gpu

        def wait(self, timeout: float | None = None) -> int:
            in_use.remove(self.gpu)
            return 0

    def start(command, env, **_):
        assert env.items() >= (os.environ | {"OMP_NUM_THREADS": env["OMP_NUM_THREADS"]}).items() - {
            ("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
        }
        gpu = env["CUDA_VISIBLE_DEVICES"]
        assert gpu not in in_use
        in_use.append(gpu)
        seen.append(gpu)
        return Running(gpu)

    monkeypatch.setattr(driver.subprocess, "Popen", start)
    engine = Local([{"CUDA_VISIBLE_DEVICES": gpu, "OMP_NUM_THREADS": "1"} for gpu in "01"])
    assert engine.at_a_time == 2
    runs = [Run(f"source/{number}", "pretrain", {"root": "."}) for number in range(20)]
    assert engine.execute(runs, ".", tmp_path, lambda line: None) == []
    assert len(seen) == 20
    assert set(seen) <= {"0", "1"}


def test_ray_that_is_not_installed_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("tllib_ancon.paper.engines.ray")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'tllib-ancon\[ray\]'"), started(EngineConfig(engine="ray")):
        pass
