"""Plans and scripts of the benchmarks make runs that this package accepts."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tllib_ancon.cli.main import parse
from tllib_ancon.laboratory import plan

BENCHMARKS = ROOT / "benchmarks"
PLANS = sorted((BENCHMARKS / "tables").glob("*.toml"))
RECORDER = """#!/usr/bin/env bash
printf '%q ' "$@" >> "$RECORD"
echo >> "$RECORD"
"""


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_run_of_a_plan_is_accepted(path):
    runs = list(plan.load(str(path)).runs("ROOT", Path("OUT")))
    assert len({run.name for run in runs}) == len(runs)
    assert all(run.config.epochs > 0 for run in runs)


def test_what_a_gpu_shows_are_commands_of_this_package(tmp_path):
    """Its programs are replaced by some that record their words."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights.safetensors").touch()
    for name in ("tllib-ancon", "python"):
        (tmp_path / name).write_text(RECORDER)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "RECORD": "words", "WORKERS": "0"}
    subprocess.run([BENCHMARKS / "gpu/run.sh", "data", "out"], cwd=tmp_path, env=environment, check=False)
    recorded = map(shlex.split, (tmp_path / "words").read_text().splitlines())
    commands = [parse(words) for words in recorded if words[0] != "-m"]
    assert [args.chosen for args in commands] == ["pretrain", *["adapt"] * 6, "benchmark", "report"]
    assert commands[0].pretrained_weights == "data/weights.safetensors"
    assert len({args.log for args in commands[1:7]}) == 6
