"""``run.sh``: its commands, and the same with tiny networks on the CPU."""

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
        *["step", "votes", "search", "images", "augmentation", "epochs", "predictions"]
    ]
    assert made[-1] == ["python", "-m", "benchmarks.gpu.summary", "out"]


def test_runs_on_the_cpu_and_their_page(tmp_path: Path) -> None:
    """A start, two deterministic adaptations and their comparison; the rest takes minutes."""
    for name in ("amazon", "dslr", "webcam"):
        write_list(tmp_path / "data" / "office31", name, images=40, classes=31)
    (tmp_path / "out" / "ended").mkdir(parents=True)
    for name in (*SHORT[2:], "office31", "report"):
        (tmp_path / "out" / "ended" / name).write_text("0\n")
        (tmp_path / "out" / "logs").mkdir(exist_ok=True)
    network = "-a small_cnn --scratch --train-resizing res. --val-resizing res. --resize-size 16 --bottleneck-dim 8"
    for name, words in {"python": "", "tllib-ancon": "-m tllib_ancon"}.items():
        (tmp_path / name).write_text(f'#!/usr/bin/env bash\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / name).chmod(0o755)
    roots = os.pathsep.join([str(recorded.BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    own = {"NETWORK": network, "SHORT": "--epochs 1 -b 8", "SPEED": "", "WORKERS": "0", "PYTHONPATH": roots}
    variables = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **own}
    began = subprocess.check_output([str(SCRIPT), "data", "out"], cwd=tmp_path, env=variables, text=True, timeout=240)
    assert began.split() == ["start", "deterministic", "deterministic-again", "bit-for-bit"]
    page = (tmp_path / "out" / "summary.md").read_text()
    assert "| bit-for-bit | done |" in page
    assert page.count("| deterministic-again |") == 2
    assert "same bit for bit" in (tmp_path / "out" / "logs" / "bit-for-bit.txt").read_text()
