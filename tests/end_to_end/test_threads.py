"""The number of PyTorch's threads, which decides numbers, is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.cutting import cut_in_the_second_epoch
from tllib_ancon.cli.main import main
from tllib_ancon.training.source_training import SourceTraining


@pytest.mark.parametrize("command", ["adapt", "pretrain"])
def test_threads_are_recorded_and_others_are_said(
    domains: Path, source_checkpoint: Path, tmp_path: Path, monkeypatch, capsys, command: str
) -> None:
    before, run = torch.get_num_threads(), tmp_path / "run"
    words = [command, *small_arguments(domains), "--epochs", "2", "--log", str(run)]
    words += ["-t", "dark", "--checkpoint", str(source_checkpoint)] if command == "adapt" else []
    words.remove("--quiet")
    cut_in_the_second_epoch(monkeypatch, words, *([SourceTraining] if command == "pretrain" else []))
    assert json.loads((run / "config.json").read_text())["threads"] == before
    capsys.readouterr()
    assert main([*words, "--threads", str(before + 1)]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "warning" in line)
    assert f"warning: this run began with {before} threads of PyTorch and goes on with {before + 1}" in line
    assert torch.get_num_threads() == before
    assert json.loads((run / "config.json").read_text())["threads"] == before


def test_threads_are_those_that_were_asked_for(domains: Path, tmp_path: Path, monkeypatch) -> None:
    seen: list[int] = []
    train_epoch = SourceTraining._train_epoch

    def seeing(self: SourceTraining, epoch: int) -> dict[str, float]:
        seen.append(torch.get_num_threads())
        return train_epoch(self, epoch)

    monkeypatch.setattr(SourceTraining, "_train_epoch", seeing)
    words = ["pretrain", *small_arguments(domains), "--epochs", "1", "--threads", "3", "--log", str(tmp_path / "run")]
    assert main(words) == 0
    assert seen == [3]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["threads"] == 3
