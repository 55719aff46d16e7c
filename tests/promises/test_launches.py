"""The command line in two processes makes one run, and the loss of one process ends it in one line."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.domains_on_disk import adapt_arguments, write_domains
from tests.support.json_files import read_json
from tests.support.killable import finish_in_two, free_port, start_in_two
from tests.support.outcomes import differences, outcome
from tllib_ancon.cli.main import main

EPOCHS = 6
STEPS_UNTIL_KILL = 10
"""Of three in each epoch."""
TORCHRUN = ("torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port")


def launched(words):
    """Output and errors of ``torchrun … tllib-ancon WORDS``; without ``--`` it takes ``--log`` for its own."""
    command = [sys.executable, "-m", *TORCHRUN, str(free_port()), "-m", "--", "tllib_ancon", *words]
    on_cpus = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=on_cpus)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def arguments(domains, checkpoint, log):
    more = ("-b", "8", "--epochs", str(EPOCHS), "--method", "nrc+ancon")
    return adapt_arguments(domains, checkpoint, log, *more)


def content(run):
    """All that a finished run holds."""
    return outcome(run, "checkpoints/[!s]*.pth", "metrics.jsonl", "*.npz")


@pytest.fixture(scope="module")
def whole(domains, source_checkpoint, tmp_path_factory):
    """A finished run, its output and its errors."""
    log = tmp_path_factory.mktemp("whole") / "run"
    return log, *launched([word for word in arguments(domains, source_checkpoint, log) if word != "--quiet"])


def test_one_run_directory_with_the_layout_of_one_process_and_one_summary(domains, source_checkpoint, tmp_path, whole):
    log, out, errors = whole
    words = arguments(domains, source_checkpoint, tmp_path / "alone")
    words.remove("--quiet")  # a quiet run draws no picture
    assert main(words) == 0
    assert files(log) == files(tmp_path / "alone")
    assert out.count("source model (epoch 0)") == 1
    assert out.count("selected by infomax") == 1
    assert errors.count(f"epoch {EPOCHS}/{EPOCHS} ") == 1
    assert read_json(log / "config.json")["processes"] == 2
    votes = content(log)["predictions.npz"]["votes"].sum(1)
    adapted = len(votes) - round(len(votes) * 0.1)
    assert adapted / 2 < (votes > 0).sum() <= adapted


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_run_whose_one_process_is_killed_ends_and_continues_in_as_many(
    domains, source_checkpoint, tmp_path, whole, refused
):
    log = tmp_path / "cut"
    words = arguments(domains, source_checkpoint, log)
    first, second = start_in_two(words, tmp_path, events_until_second_is_killed=STEPS_UNTIL_KILL)
    first.join()
    second.join()
    assert second.exitcode == -signal.SIGKILL
    errors = (tmp_path / "0.txt").read_text()
    assert first.exitcode, errors
    assert "another process of this run ended" in errors
    assert "tllib_ancon/training" not in errors, errors
    assert not (log / "result.json").exists()
    assert not list(log.rglob("*.partial"))
    assert "processes: 2 there, 1 now" in refused(words)
    finish_in_two(words)
    assert differences(content(whole[0]), content(log)) == []


def test_an_error_of_one_process_is_told_and_ends_all(source_checkpoint, tmp_path):
    domains = write_domains(tmp_path)
    (domains / "dark" / "green" / "001.png").write_bytes(b"no image")
    both = start_in_two(arguments(domains, source_checkpoint, tmp_path / "run"), tmp_path)
    for process in both:
        process.join()
    assert all(process.exitcode for process in both)
    errors = "".join((tmp_path / name).read_text() for name in ("0.txt", "1.txt"))
    assert errors.count("001.png is no JPEG") == 1


@pytest.mark.parametrize("words", ["demo --out out", "script cdan.py", "benchmark office31 . --out out"])
def test_commands_of_one_process_refuse_many(words, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert "runs in one process, and 2 were started; use --nproc-per-node 1" in refused(words.split())
    assert not (tmp_path / "out").exists()
