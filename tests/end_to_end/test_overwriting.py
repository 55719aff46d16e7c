"""``--overwrite`` starts anew; the same command, cut off, goes on with what it began, by any threads."""

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.cutting import counting, cut_in_the_second_epoch
from tests.end_to_end.killable import differences
from tllib_ancon.cli.main import main
from tllib_ancon.paper import demo
from tllib_ancon.training.pretrain import SourceOnly
from tllib_ancon.training.run import RunDirectory


def test_what_a_command_with_overwrite_began_is_continued(adapt, tmp_path, monkeypatch) -> None:
    words = adapt("run", "--epochs", "3")
    assert main(adapt("whole", "--epochs", "3")) == 0
    assert main(words) == 0
    cut_in_the_second_epoch(monkeypatch, [*words, "--overwrite"])
    epochs = counting(monkeypatch)
    assert main([*words, "--overwrite"]) == 0
    assert epochs == [2, 3]
    checkpoints = [torch.load(tmp_path / run / "checkpoints/latest.pth", weights_only=True) for run in ("whole", "run")]
    assert differences(*checkpoints) == []
    assert main([*words, "--overwrite"]) == 0
    assert epochs == [2, 3, 1, 2, 3]


def test_what_began_otherwise_is_not_and_without_overwrite_it_is_continued_too(adapt, tmp_path, monkeypatch) -> None:
    epochs = counting(monkeypatch)
    cut_in_the_second_epoch(monkeypatch, adapt())
    cut_in_the_second_epoch(monkeypatch, adapt("run", "--overwrite"))
    assert epochs == [1, 1]
    assert main(adapt()) == 0
    assert epochs == [1, 1, 2]
    cut_in_the_second_epoch(monkeypatch, adapt("run", "--overwrite", "--lr", "0.02"))
    assert epochs == [1, 1, 2, 1]
    state = tmp_path / "run" / "checkpoints" / "state.pth"
    state.write_bytes(state.read_bytes()[:-5])
    assert main(adapt("run", "--overwrite", "--lr", "0.02")) == 0
    assert epochs == [1, 1, 2, 1, 1, 2]


def test_a_demo_with_overwrite_makes_every_run_again(tmp_path: Path, monkeypatch) -> None:
    made: list[str] = []

    numbers = {"accuracy": 50.0, "ece": 0.1, "epoch": 0}

    def run_all(self: demo.Demo, say: object) -> None:
        for directory in (RunDirectory(self.out / run.name) for run in self.runs()):
            if directory.finished:
                continue
            made.append(directory.path.name)
            directory.begin({"name": directory.path.name})
            directory.save_epoch({"parts": {"model": {}}}, [numbers], True)
            directory.finish({"start": numbers, "selected": numbers})

    monkeypatch.setattr(demo.Demo, "run", run_all)
    monkeypatch.setattr("tllib_ancon.data.demo.write_demo_domains", lambda root: None)
    monkeypatch.setattr("tllib_ancon.cli.commands.draw_curves", lambda metrics, path: None)
    words = ["demo", "--out", str(tmp_path), "--seeds", "0"]
    for more, times in (([], 1), ([], 1), (["--overwrite"], 2)):
        assert main([*words, *more]) == 0
        assert len(made) == times * (1 + len(demo.METHODS))


@pytest.mark.parametrize("name", ["checkpoints/best.pth", ""])
def test_a_run_does_not_write_over_its_start(adapt, tmp_path, refused, name: str) -> None:
    assert main(adapt()) == 0
    kept, start = (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes(), tmp_path / "run" / name
    for more in ((), ("--overwrite",)):
        shown = refused(adapt("run", *more, checkpoint=start))
        assert "best.pth lies where this run writes its own; choose another --log" in shown
        assert (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes() == kept
    assert main(adapt("next", checkpoint=start)) == 0


@pytest.mark.parametrize("command", ["adapt", "pretrain"])
def test_threads_are_recorded_and_others_are_said(
    adapt, domains: Path, tmp_path: Path, monkeypatch, capsys, command: str
) -> None:
    before, run = torch.get_num_threads(), tmp_path / "run"
    training = ["pretrain", *small_arguments(domains), "--epochs", "2", "--log", str(run)]
    words = [word for word in (adapt() if command == "adapt" else training) if word != "--quiet"]
    cut_in_the_second_epoch(monkeypatch, words, *([SourceOnly] if command == "pretrain" else []))
    assert json.loads((run / "config.json").read_text())["threads"] == before
    capsys.readouterr()
    assert main([*words, "--threads", str(before + 1)]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "warning" in line)
    assert f"warning: this run began with {before} threads of PyTorch and continues with {before + 1}" in line
    assert torch.get_num_threads() == before
    assert json.loads((run / "config.json").read_text())["threads"] == before


def test_threads_are_those_that_were_asked_for(domains: Path, tmp_path: Path, monkeypatch) -> None:
    seen: list[int] = []
    train = SourceOnly._train_epoch
    monkeypatch.setattr(SourceOnly, "_train_epoch", lambda *args: seen.append(torch.get_num_threads()) or train(*args))
    words = ["pretrain", *small_arguments(domains), "--epochs", "1", "--threads", "3", "--log", str(tmp_path / "run")]
    assert main(words) == 0
    assert seen == [3]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["threads"] == 3
