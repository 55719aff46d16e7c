"""A plan runs source models first and each run once; a failure or a signal stops only what it must."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest

from tests.conftest import REFUSED
from tests.domains_on_disk import small_arguments, write_domains
from tests.end_to_end.killable import wait_for
from tests.in_this_process import Ended
from tests.refusals import one_line
from tllib_ancon.laboratory import local
from tllib_ancon.laboratory.local import LOG, Command, EngineConfig, Local, environments, finished, visible_gpus
from tllib_ancon.laboratory.plan import PlannedRun
from tllib_ancon.runtime.errors import Interrupted
from tllib_ancon.training.files import lock_folder

SOURCES = [PlannedRun(f"source/{name}", "pretrain", {"root": name}) for name in "abc"]
ADAPTATIONS = [
    PlannedRun(f"erm/{number}", "adapt", {"root": str(number)}, f"source/{source}")
    for number, source in enumerate("abab")
]
RUNS = [*SOURCES[:2], *ADAPTATIONS]
EIGHT = [str(number) for number in range(8)]


def execute(runs, out, jobs=1, say=print):
    return Local([{}] * jobs).execute(runs, ".", out, say)


class Commands(list):
    """The words of each command that was run; a command whose last word is in ``broken`` fails."""

    broken: frozenset[str] = frozenset()


@pytest.fixture
def commands(tmp_path, monkeypatch):
    made = Commands()
    runs = {tuple(run.words): run for run in RUNS}

    def start_nothing(command, **streams):
        words = command[4:]
        made.append(words)
        if words[-1] in made.broken:
            streams["stdout"].write("" if words[-1] == "3" else "a traceback\nthe reason\n")
            return Ended(2)
        (tmp_path / runs[tuple(words)].name / "result.json").write_text("{}")
        return Ended(0)

    monkeypatch.setattr(local.subprocess, "Popen", start_nothing)
    return made


@pytest.mark.parametrize("jobs", [1, 3])
def test_sources_come_first_and_everything_is_made_once(commands, tmp_path, jobs):
    said = []
    assert execute(RUNS, tmp_path, jobs, said.append) == {}
    assert sorted(words[-1] for words in commands[:2]) == ["a", "b"]
    assert sorted(words[-1] for words in commands[2:]) == ["0", "1", "2", "3"]
    assert sorted(said)[0] == "[1/6] source/a"
    assert len(said) == 6
    assert all(finished(run, tmp_path) for run in RUNS)


def test_a_failed_run_stops_only_what_starts_from_it(commands, tmp_path):
    commands.broken = frozenset("a13")
    (tmp_path / "erm/1").mkdir(parents=True)
    (tmp_path / "erm/1" / LOG).write_text("of an earlier attempt\n")
    assert execute(RUNS, tmp_path, jobs=2) == {
        "source/a": "exit status 2: the reason",
        "erm/0": "needs source/a, which failed",
        "erm/1": "exit status 2: the reason",
        "erm/2": "needs source/a, which failed",
        "erm/3": "exit status 2: no output",
    }
    assert sorted(words[-1] for words in commands) == ["1", "3", "a", "b"]
    assert "earlier attempt\na traceback" in (tmp_path / "erm/1" / LOG).read_text()


def test_a_full_disk_fails_the_run_and_names_its_log(commands, tmp_path, monkeypatch):
    def refuse(file, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    monkeypatch.setattr(local, "open", refuse, raising=False)
    (reason,) = execute(SOURCES[:1], tmp_path).values()
    assert reason.startswith(f"{tmp_path / 'source/a' / LOG}: No space left on device")
    assert commands == []


# Signals


def start_and_wait(words, out, started):
    command = Command(SimpleNamespace(name="run", words=words), out, {})
    started.send(command.process.pid)
    signal.pause()


def test_a_command_ends_when_its_parent_is_killed_and_lets_go_of_its_folder(tmp_path):
    log = tmp_path / "run"
    words = ["pretrain", *small_arguments(write_domains(tmp_path)), "-j", "1", "--epochs", "100000", "--log", str(log)]
    here, there = multiprocessing.Pipe()
    parent = multiprocessing.get_context("fork").Process(target=start_and_wait, args=(words, tmp_path, there))
    parent.start()
    started = psutil.Process(here.recv())
    wait_for(lambda: (log / "metrics.jsonl").is_file() or not started.is_running())
    workers = started.children()
    parent.kill()
    parent.join()
    psutil.wait_procs([started, *workers])
    lock_folder(log).close()


ASLEEP = "import signal; print(flush=True); signal.alarm(600); signal.pause()"
STUBBORN = (
    f"import signal, time; signal.signal(signal.SIGTERM, lambda *_: print(flush=True)); {ASLEEP}; time.sleep(600)"
)


@pytest.fixture
def sleeping(tmp_path, monkeypatch):
    """Make three runs, two at a time, whose commands sleep, and send this process signals, one after the other."""

    def sleeping(numbers, code, said):
        start = subprocess.Popen
        started = []

        def start_sleeping(command, **streams):
            started.append(start([sys.executable, "-c", code], **streams))
            if len(started) == 2:
                threading.Thread(target=send).start()
            return started[-1]

        def both_have_printed(lines):
            sizes = [log.stat().st_size for log in tmp_path.rglob(LOG)]
            return sizes == [lines] * 2

        def send():
            """A signal when both commands have printed as many lines as signals came before, and one."""
            for lines, number in enumerate(numbers, start=1):
                wait_for(lambda lines=lines: both_have_printed(lines))
                os.kill(os.getpid(), number)

        monkeypatch.setattr(local.subprocess, "Popen", start_sleeping)
        monkeypatch.setattr("tllib_ancon.runtime.interruption.AT_ONCE", 0.0)  # two signals are two
        before = signal.signal(numbers[0], signal.default_int_handler)
        with pytest.raises(Interrupted, match=signal.Signals(numbers[0]).name):
            execute(SOURCES, tmp_path, jobs=2, say=said.append)
        assert signal.signal(numbers[0], before) == signal.default_int_handler
        return started

    return sleeping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_gets_a_signal_alone_ends_its_commands_and_says_so(sleeping, number):
    said = []
    started = sleeping([number], ASLEEP, said)
    assert [process.poll() for process in started] == [-signal.SIGTERM] * 2
    assert said[-1] == f"{number.name}: the running commands end their step; once more ends them at once"


def test_a_second_signal_kills_the_commands(sleeping):
    started = sleeping([signal.SIGINT, signal.SIGINT], STUBBORN, [])
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2


# GPUs and threads


@pytest.mark.parametrize(
    ("settings", "visible", "expected"),
    [
        ({}, EIGHT, EIGHT),
        ({"jobs": 3}, EIGHT, EIGHT[:3]),
        ({"gpus_per_run": 2}, EIGHT, ["0,1", "2,3", "4,5", "6,7"]),
        ({"gpus_per_run": 0.5}, ["0", "1"], ["0", "1", "0", "1"]),
        ({"gpus_per_run": 0.5, "jobs": 2}, ["0", "1"], ["0", "1"]),
        ({"gpus_per_run": 0.3}, ["0"], ["0"] * 3),
        ({"gpus_per_run": 0.7}, ["0", "1"], ["0", "1"]),
        ({"jobs": 5}, ["0", "1"], ["0", "1", "0", "1", "0"]),
        ({"gpus_per_run": 2}, ["GPU-a", "GPU-b", "GPU-c"], ["GPU-a,GPU-b"]),
        ({"gpus_per_run": 0, "jobs": 2}, EIGHT, ["", ""]),
        ({}, [], [None] * 16),
        ({"cpus_per_run": 5}, [], [None] * 3),
        ({"cpus_per_run": 17}, [], [None]),
    ],
)
def test_each_run_has_gpus_and_threads_of_its_own(settings, visible, expected):
    found = environments(EngineConfig(**settings), visible, cores=16)
    assert [share.get("CUDA_VISIBLE_DEVICES") for share in found] == expected
    assert {share["OMP_NUM_THREADS"] for share in found} == {str(settings.get("cpus_per_run", 1))}


@pytest.mark.parametrize(("settings", "gpus", "message"), REFUSED["engines"])
def test_settings_that_are_refused(settings, gpus, message):
    with one_line(message):
        environments(EngineConfig(**settings), EIGHT[:gpus], 16)


def test_the_gpus_of_this_process_have_the_names_that_it_sees(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-b,9")
    assert visible_gpus() == ["5", "GPU-b"]


def test_a_share_is_given_to_one_run_at_a_time(tmp_path, monkeypatch):
    in_use = []
    seen = []

    class Running(Ended):
        def poll(self):
            in_use.remove(self.gpu)
            return 0

    def start(command, env, **_):
        process = Running(0)
        process.gpu = env["CUDA_VISIBLE_DEVICES"]
        assert process.gpu not in in_use
        in_use.append(process.gpu)
        seen.append(process.gpu)
        return process

    monkeypatch.setattr(local.subprocess, "Popen", start)
    engine = Local([{"CUDA_VISIBLE_DEVICES": gpu, "OMP_NUM_THREADS": "1"} for gpu in "01"])
    runs = [PlannedRun(f"source/{number}", "pretrain", {"root": "."}) for number in range(20)]
    assert engine.execute(runs, ".", tmp_path, lambda line: None) == {}
    assert len(seen) == 20
    assert set(seen) == {"0", "1"}
