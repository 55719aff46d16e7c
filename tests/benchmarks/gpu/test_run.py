"""``run.sh``: its commands, how it continues, and the same with tiny networks on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks import recorded
from tests.layouts import write_list
from tllib_ancon.cli.main import parse

SCRIPT = recorded.BENCHMARKS / "gpu" / "run.sh"
SHORT = [
    "deterministic",
    "deterministic-again",
    "float32",
    "fp16",
    "bf16",
    "compile",
    "device-augmentation",
    "everything",
]


def call(folder: Path, commands: dict[str, str], **environment: str) -> tuple[int, list[str]]:
    """The script with these programs in place of its own; its status and the steps that it began."""
    for name, text in commands.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    variables = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **environment}
    done = subprocess.run(
        [str(SCRIPT), "data", "out"], cwd=folder, env=variables, capture_output=True, text=True, timeout=240
    )
    return done.returncode, done.stdout.split()


def test_its_commands_are_commands_of_this_package(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights.safetensors").touch()
    made = recorded.commands("gpu/run.sh", ["data", "out"], tmp_path)
    parsed = [(words[1], parse(words[1:])) for words in made if words[0] == "tllib-ancon"]
    assert [name for name, _ in parsed] == ["pretrain", *["adapt"] * len(SHORT), "benchmark", "report"]
    assert parsed[0][1].pretrained_weights == "data/weights.safetensors"
    assert [Path(args.log).name for name, args in parsed if name == "adapt"] == list(SHORT)
    measured = [words for words in made if "benchmarks.speed" in words]
    assert [words[4] for words in measured] == [
        *["step", "votes", "search", "images", "augmentation", "epochs", "predictions", "peak"]
    ]
    assert made[-1] == ["python", "-m", "benchmarks.gpu.summary", "out"]


def test_what_ended_is_not_made_again_and_what_failed_is_kept(tmp_path: Path) -> None:
    commands = {"python": "exit 0", "tllib-ancon": '[[ "$*" != *fp16* ]] || { echo "no fp16 here"; exit 3; }'}
    status, began = call(tmp_path, commands)
    assert status == 1
    assert {"speed-step", "fp16", "office31", "report"} <= set(began)
    assert (tmp_path / "out" / "ended" / "fp16").read_text() == "3\n"
    assert "no fp16 here" in (tmp_path / "out" / "logs" / "fp16.txt").read_text()
    assert call(tmp_path, commands) == (1, [])
    (tmp_path / "out" / "ended" / "fp16").unlink()
    assert call(tmp_path, {"tllib-ancon": "exit 0"}) == (0, ["fp16"])


def test_a_call_ends_in_time_and_the_next_one_continues(tmp_path: Path) -> None:
    status, began = call(tmp_path, {"python": "exit 0", "tllib-ancon": "sleep 30"}, MINUTES="0.02", SPEED="")
    assert (status, began) == (75, ["start"])
    assert not (tmp_path / "out" / "ended" / "start").exists()
    assert call(tmp_path, {"tllib-ancon": "exit 0"}, SPEED="")[1][0] == "start"


def test_runs_on_the_cpu_and_their_page(tmp_path: Path) -> None:
    """A start, two deterministic adaptations and their comparison; the rest takes minutes."""
    tiny = tmp_path
    for name in ("amazon", "dslr", "webcam"):
        write_list(tiny / "data" / "office31", name, images=40, classes=31)
    (tiny / "out" / "ended").mkdir(parents=True)
    for name in (*SHORT[2:], "office31", "report"):
        (tiny / "out" / "ended" / name).write_text("0\n")
        (tiny / "out" / "logs").mkdir(exist_ok=True)
    network = "-a small_cnn --scratch --train-resizing res. --val-resizing res. --resize-size 16 --bottleneck-dim 8"
    own = {
        name: f'exec {sys.executable} {"-m tllib_ancon" if name != "python" else ""} "$@"'
        for name in ("python", "tllib-ancon")
    }
    roots = os.pathsep.join([str(recorded.BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {"SHORT": "--epochs 1 -b 8", "SPEED": "", "WORKERS": "0", "PYTHONPATH": roots, "OMP_NUM_THREADS": "1"}
    status, began = call(tiny, own, NETWORK=network, **environment)
    assert (status, began) == (0, ["start", "deterministic", "deterministic-again", "bit-for-bit"])
    page = (tiny / "out" / "summary.md").read_text()
    assert "| bit-for-bit | done |" in page
    assert page.count("| deterministic-again |") == 2
    assert "same bit for bit" in (tiny / "out" / "logs" / "bit-for-bit.txt").read_text()
