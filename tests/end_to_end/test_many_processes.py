"""The command line in two processes, started by torchrun and by accelerate launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.faults.outcomes import outcome
from tests.domains_on_disk import small_arguments, write_domains
from tests.end_to_end.killable import differences
from tests.training.in_processes import free_port
from tllib_ancon.cli.main import main

EPOCHS = 20
TORCHRUN = ("torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port")
ACCELERATE = (
    *("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"),
    *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port"),
)


def start(*words: str, launcher: tuple[str, ...] = TORCHRUN) -> subprocess.Popen[str]:
    """``LAUNCHER … tllib-ancon WORDS``; without ``--`` torchrun takes ``--log`` for a flag of its own."""
    module = ("-m", "--", "tllib_ancon") if launcher == TORCHRUN else ("-m", "tllib_ancon")
    command = [sys.executable, "-m", *launcher, str(free_port()), *module, *words]
    on_cpus = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=on_cpus)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, output and errors."""
    out, errors = process.communicate(timeout=240)
    return process.returncode, out, errors


def arguments(domains: Path, checkpoint: Path, log: Path) -> list[str]:
    words = ["adapt", *small_arguments(domains), "-t", "dark", "--checkpoint", str(checkpoint), "--log", str(log)]
    return [*words, "-b", "8", "--epochs", str(EPOCHS), "--save-predictions"]


def content(run: Path) -> dict[str, Any]:
    """All that a finished run holds."""
    return outcome(run, "checkpoints/[!s]*.pth", "metrics.jsonl", "*.npz")


@pytest.fixture(scope="module")
def whole(domains: Path, source_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A finished run, its output and its errors."""
    log = tmp_path_factory.mktemp("whole") / "run"
    words = arguments(domains, source_checkpoint, log)
    words.remove("--quiet")
    status, out, errors = finish(start(*words))
    assert status == 0, errors
    return log, out, errors


def test_one_run_directory_with_the_layout_of_one_process_and_one_summary(
    domains: Path, source_checkpoint: Path, tmp_path: Path, whole: tuple[Path, str, str]
) -> None:
    log, out, errors = whole
    words = arguments(domains, source_checkpoint, tmp_path / "alone")
    words.remove("--quiet")  # a quiet run draws no picture
    assert main(words) == 0
    assert files(log) == files(tmp_path / "alone")
    assert out.count("start (epoch 0)") == out.count("selected by infomax") == 1
    assert errors.count(f"epoch {EPOCHS}/{EPOCHS}:") == 1
    assert json.loads((log / "config.json").read_text())["processes"] == 2
    assert "processes" not in json.loads((tmp_path / "alone" / "config.json").read_text())
    votes = content(log)["predictions.npz"]["votes"].sum(1)
    adapted = len(votes) - round(len(votes) * 0.1)
    assert adapted / 2 < (votes > 0).sum() <= adapted


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_run_whose_one_process_is_killed_ends_soon_and_continues_in_as_many(
    domains: Path, source_checkpoint: Path, tmp_path: Path, whole: tuple[Path, str, str], refused
) -> None:
    log = tmp_path / "cut"
    words = arguments(domains, source_checkpoint, log)
    launcher = start(*words)
    wait_for(lambda: (log / "config.json").is_file())
    second = process_of_rank(launcher, 1)
    wait_for(lambda: (log / "metrics.jsonl").is_file())
    second.kill()
    killed = time.monotonic()
    status, _, errors = finish(launcher)
    assert status != 0, errors
    assert time.monotonic() - killed < 20
    assert "another process of this run ended" in errors or "stopped by SIGTERM" in errors, errors
    assert "tllib_ancon/training" not in errors, errors
    assert not (log / "result.json").exists()
    assert not list(log.rglob("*.partial"))

    assert "processes: 2 there, None now" in refused(words)

    status, out, errors = finish(start(*words))
    assert (status, out.count("selected by infomax")) == (0, 1), errors
    assert differences(content(whole[0]), content(log)) == []


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def process_of_rank(launcher: subprocess.Popen[str], rank: int) -> psutil.Process:
    children = psutil.Process(launcher.pid).children(recursive=True)
    return next(child for child in children if child.environ().get("RANK") == str(rank))


def test_an_error_of_one_process_is_said_once_and_ends_all(source_checkpoint: Path, tmp_path: Path) -> None:
    domains = write_domains(tmp_path)
    (domains / "dark" / "green" / "001.png").write_bytes(b"no image")
    status, out, errors = finish(start(*arguments(domains, source_checkpoint, tmp_path / "run")))
    assert status != 0
    assert out == ""
    assert errors.count("tllib-ancon: ") == 1
    assert errors.count("001.png: cannot be decoded") == 1


@pytest.mark.parametrize("command", ["demo", "script", "benchmark"])
def test_commands_of_one_process_refuse_many(command: str, tmp_path: Path, monkeypatch, refused) -> None:
    words = {
        "demo": ["--out", str(tmp_path / "out")],
        "script": ["cdan.py"],
        "benchmark": ["office31", str(tmp_path), "--out", str(tmp_path / "out")],
    }
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    shown = refused([command, *words[command]])
    assert f"{command} runs in one process, and 2 were started; use --nproc-per-node 1" in shown
    assert not (tmp_path / "out").exists()


CASES = {
    "CDAN, the second process in the first stage": (("cdan", "--entropy"), ACCELERATE, TORCHRUN, "pretrain", 1),
    "MDD, the writing process in the second stage": (("mdd",), TORCHRUN, ACCELERATE, "adapt", 0),
}
"""Method of the first stage; launcher of the whole run and of the end of the other; launcher of its beginning, where a
process is killed: in which stage, of which rank."""


@pytest.mark.parametrize(("method", "launcher", "first_launcher", "stage", "rank"), CASES.values(), ids=CASES)
def test_two_stages_that_are_killed_continue_under_another_launcher(
    domains: Path,
    tmp_path: Path,
    method: tuple[str, ...],
    launcher: tuple[str, ...],
    first_launcher: tuple[str, ...],
    stage: str,
    rank: int,
) -> None:
    def words(name: str) -> list[str]:
        stages = ("--pretrain", *method, "--epochs", "8", "-i", "4", "--adapt-epochs", "12")
        batches = ("-t", "dark", "-b", "8", "--adapt-batch-size", "8", "--log", str(tmp_path / name))
        return ["run", *small_arguments(domains), *stages, *batches]

    status, out, errors = finish(start(*words("whole"), launcher=launcher))
    assert status == 0, errors
    assert out.count("both stages in") == out.count(f"{method[0]}, epoch 8") == 1

    begun = start(*words("cut"), launcher=first_launcher)
    wait_for(lambda: (tmp_path / "cut" / stage / "metrics.jsonl").is_file())
    process_of_rank(begun, rank).kill()
    status, _, errors = finish(begun)
    assert status != 0, errors
    assert not (tmp_path / "cut" / stage / "result.json").exists()
    assert (tmp_path / "cut" / "pretrain" / "result.json").exists() == (stage == "adapt")
    status, _, errors = finish(start(*words("cut"), launcher=launcher))
    assert status == 0, errors
    for folder in ("pretrain", "adapt"):
        assert json.loads((tmp_path / "cut" / folder / "config.json").read_text())["processes"] == 2
        assert differences(content(tmp_path / "whole" / folder), content(tmp_path / "cut" / folder)) == []
