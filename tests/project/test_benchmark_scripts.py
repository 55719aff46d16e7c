"""Plans and scripts of the benchmarks make runs that this package accepts, with the settings that their pages state."""

import os
import shlex
import subprocess
from collections import Counter
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
SHOT = {"epochs": 30, "hold_out": 0, "batch_size": 64, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}


@pytest.fixture
def started(tmp_path):
    """Run a script with programs that record their words; returns the commands of the package, parsed."""

    def run(script, *arguments, **variables):
        for name in ("tllib-ancon", "python"):
            program = tmp_path / name
            program.write_text(RECORDER)
            program.chmod(0o755)
        record = tmp_path / "record"
        environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "RECORD": str(record), **variables}
        subprocess.run([str(BENCHMARKS / script), *arguments], cwd=tmp_path, env=environment, check=False)
        recorded = [shlex.split(line) for line in record.read_text().splitlines()]
        return [parse(words) for words in recorded if words[0] != "-m"]

    return run


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_run_of_a_plan_is_accepted(path):
    runs = list(plan.load(str(path)).runs("ROOT", Path("OUT")))
    assert len({run.name for run in runs}) == len(runs)
    assert all(run.config.epochs > 0 for run in runs)


def test_digits_follow_the_protocol_of_shot(started):
    commands = started("tables/digits/mnist_usps.sh", "digits", "out")
    assert Counter(args.chosen for args in commands) == {"pretrain": 6, "adapt": 36, "evaluate": 42}
    for args in commands:
        if args.chosen == "evaluate":
            assert args.target[0].endswith("_test")
            assert args.checkpoint.endswith("checkpoints/latest.pth")
            continue
        config = args.command.configured(args)
        assert {name: getattr(config, name) for name in SHOT} == SHOT
        if args.chosen == "pretrain":
            assert config.label_smoothing == 0.1
            assert config.bottleneck_dropout == 0.5
            assert config.rotation == (10 if config.source == ("usps_train",) else 0)
        else:
            assert config.dropout
            assert config.target[0].endswith("_train")


def test_what_a_gpu_shows_are_commands_of_this_package(started, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights.safetensors").touch()
    commands = started("gpu/run.sh", "data", "out", WORKERS="0")
    assert [args.chosen for args in commands] == ["pretrain", *["adapt"] * 6, "benchmark", "report"]
    assert commands[0].pretrained_weights == "data/weights.safetensors"
    assert len({args.log for args in commands[1:7]}) == 6
