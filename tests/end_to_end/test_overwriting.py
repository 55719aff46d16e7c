"""``--overwrite`` starts anew; and the same command, cut off, goes on with what it began."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.cutting import counting, cut_in_the_second_epoch
from tests.end_to_end.killable import differences
from tllib_ancon.cli.main import main
from tllib_ancon.paper import demo
from tllib_ancon.training.source_training import SourceTraining


@pytest.fixture
def words(domains: Path, source_checkpoint: Path, tmp_path: Path) -> Callable[..., list[str]]:
    def words(*more: str, log: str = "run") -> list[str]:
        start = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--epochs", "3", "--log", str(tmp_path / log)]
        return ["adapt", *small_arguments(domains), *start, *more]

    return words


def test_what_a_command_with_overwrite_began_is_continued(words, tmp_path, monkeypatch) -> None:
    assert main(words(log="whole")) == 0
    assert main(words()) == 0
    cut_in_the_second_epoch(monkeypatch, words("--overwrite"))
    epochs = counting(monkeypatch)
    assert main(words("--overwrite")) == 0
    assert epochs == [2, 3]
    checkpoints = [torch.load(tmp_path / run / "checkpoints/latest.pth", weights_only=True) for run in ("whole", "run")]
    assert differences(*checkpoints) == []
    assert main(words("--overwrite")) == 0
    assert epochs == [2, 3, 1, 2, 3]


def test_what_began_otherwise_is_not(words, tmp_path, monkeypatch) -> None:
    epochs = counting(monkeypatch)
    cut_in_the_second_epoch(monkeypatch, words())
    cut_in_the_second_epoch(monkeypatch, words("--overwrite"))
    assert epochs == [1, 1]
    cut_in_the_second_epoch(monkeypatch, words("--overwrite", "--lr", "0.02"))
    assert epochs == [1, 1, 1]
    state = tmp_path / "run" / "checkpoints" / "state.pth"
    state.write_bytes(state.read_bytes()[:-5])
    assert main(words("--overwrite", "--lr", "0.02")) == 0
    assert epochs == [1, 1, 1, 1, 2, 3]


def test_without_overwrite_it_is_continued_too(words, monkeypatch) -> None:
    cut_in_the_second_epoch(monkeypatch, words("--overwrite"))
    epochs = counting(monkeypatch)
    assert main(words()) == 0
    assert epochs == [2, 3]


def both(domains: Path, log: Path, *more: str) -> list[str]:
    lengths = ["--epochs", "3", "--adapt-epochs", "2", "--adapt-batch-size", "16"]
    return ["run", *small_arguments(domains), "-t", "dark", "--pretrain", "erm", *lengths, "--log", str(log), *more]


def test_of_two_stages_the_first_is_not_made_again(domains: Path, tmp_path: Path, monkeypatch) -> None:
    words = both(domains, tmp_path / "run", "--overwrite")
    first = counting(monkeypatch, SourceTraining)
    cut_in_the_second_epoch(monkeypatch, words, SourceTraining)
    cut_in_the_second_epoch(monkeypatch, words)
    assert first == [1, 2, 3]
    second = counting(monkeypatch)
    assert main(words) == 0
    assert (first, second) == ([1, 2, 3], [2])
    cut_in_the_second_epoch(monkeypatch, words)
    assert main(words) == 0
    assert (first, second) == ([1, 2, 3] * 2, [2, 1, 2])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["method"] == "ancon"


def test_of_a_demo_no_finished_run_is_made_again(tmp_path: Path, monkeypatch) -> None:
    made: list[str] = []

    def run_all(self: demo.Demo, say: object) -> dict[str, Any]:
        for directory in self.directories():
            if directory.finished:
                continue
            made.append(directory.path.name)
            if len(made) == 3:
                raise KeyboardInterrupt
            directory.begin({"name": directory.path.name})
            directory.save_epoch({"parts": {"model": {}}}, [{"epoch": 0}], True)
            directory.finish({})
        return {block: {} for block in demo.BLOCKS}

    monkeypatch.setattr(demo.Demo, "run", run_all)
    monkeypatch.setattr("tllib_ancon.data.demo.write_demo_domains", lambda root: None)
    monkeypatch.setattr("tllib_ancon.report.curves.draw_curves", lambda metrics, path: None)
    words = ["demo", "--out", str(tmp_path), "--seeds", "0", "--overwrite"]
    total = 1 + 2 * len(demo.METHODS)
    assert main(words) == 130
    assert main(words) == 0
    assert made[:4] == ["source-seed0", "adabn-seed0", "self-training-seed0", "self-training-seed0"]
    assert len(made) == total + 1
    assert main(words) == 0
    assert len(made) == 2 * total + 1


@pytest.mark.parametrize("name", ["checkpoints/best.pth", ""])
@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_a_run_does_not_write_over_its_start(words, tmp_path, capsys, name: str, more: tuple[str, ...]) -> None:
    assert main(words()) == 0
    kept = (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes()
    capsys.readouterr()
    assert main(words("--checkpoint", str(tmp_path / "run" / name), *more)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "best.pth lies where this run writes its own; choose another --log" in line
    assert (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes() == kept
    assert main(words("--checkpoint", str(tmp_path / "run" / name), log="next")) == 0
