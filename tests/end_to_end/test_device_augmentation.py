from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.killable import differences, outcome, start
from tllib_ancon.cli.main import main

CROPS = ["--train-resizing", "default", "--image-size", "14", "-b", "8", "--epochs", "3"]
ON_DEVICE = "--device-augmentation"


def arguments(domains: Path, log: Path, *more: str) -> list[str]:
    return [*small_arguments(domains), *CROPS, "--log", str(log), *more]


@pytest.fixture
def start_model(source_checkpoint: Path) -> list[str]:
    return ["-t", "dark", "--checkpoint", str(source_checkpoint), "--override"]


def test_a_run_depends_on_neither_cache_nor_workers(domains: Path, start_model: list[str], tmp_path: Path) -> None:
    cached = [ON_DEVICE, "--cache", str(tmp_path / "cache"), "-j", "2"]
    for name, more in (("in workers", []), ("on device", [ON_DEVICE]), ("cached", cached)):
        assert main(["adapt", *arguments(domains, tmp_path / name, *start_model, *more)]) == 0
    in_workers, on_device, with_cache = (
        torch.load(tmp_path / name / "checkpoints" / "latest.pth", weights_only=True)
        for name in ("in workers", "on device", "cached")
    )
    assert differences(on_device, with_cache) == []
    assert differences(on_device, in_workers) != []
    for name, weights in on_device.items():
        assert torch.allclose(weights, in_workers[name], rtol=0.01, atol=0.01)


def test_a_run_that_was_killed_ends_as_if_it_had_not_been(
    domains: Path, start_model: list[str], tmp_path: Path
) -> None:
    def finish(name: str, events_until_kill: int | None = None) -> int | None:
        command = ["adapt", *arguments(domains, tmp_path / name, *start_model, ON_DEVICE)]
        process = start(command, events_until_kill)
        process.join()
        return process.exitcode

    assert finish("whole") == 0
    assert finish("cut", events_until_kill=1000) != 0
    assert (tmp_path / "cut" / "metrics.jsonl").read_text().count("\n") in (2, 3)
    assert finish("cut") == 0
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "cut")) == []


@pytest.mark.parametrize("command", ["pretrain", "run"])
def test_source_models_are_trained_with_it_too(domains: Path, tmp_path: Path, command: str) -> None:
    more = (
        ["-t", "dark", "--pretrain", "erm", "--adapt-epochs", "1", "--adapt-batch-size", "8"]
        if command == "run"
        else []
    )
    assert main([command, *arguments(domains, tmp_path / "run", *more, ON_DEVICE)]) == 0
