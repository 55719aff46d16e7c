"""``--overwrite`` starts anew; the same command, cut off, goes on with what it began, by any threads."""

import json
import signal
from pathlib import Path

import pytest
import torch

from tests.end_to_end.cutting import counting, cut_in_the_second_epoch
from tests.end_to_end.killable import differences
from tllib_ancon.cli.main import main
from tllib_ancon.errors import Interrupted
from tllib_ancon.paper import demo
from tllib_ancon.training.adapting import Adaptation
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
    made: list[bool] = []

    def run_all(self: demo.Demo, say: object) -> None:
        made[:] = [not RunDirectory(self.out / run.name).finished for run in self.runs()]
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(demo.Demo, "run", run_all)
    monkeypatch.setattr("tllib_ancon.data.demo.write_demo_domains", lambda root: None)
    for run in demo.Demo(tmp_path, (0,), 1, 1, 1, ("",)).runs():
        (tmp_path / run.name).mkdir(parents=True)
        (tmp_path / run.name / "result.json").write_text("{}")
    words = ["demo", "--out", str(tmp_path), "--seeds", "0"]
    for more, anew in (([], False), (["--overwrite"], True)):
        assert main([*words, *more]) == 128 + signal.SIGINT
        assert set(made) == {anew}


@pytest.mark.parametrize("name", ["checkpoints/best.pth", ""])
def test_a_run_does_not_write_over_its_start(adapt, tmp_path, refused, name: str) -> None:
    assert main(adapt()) == 0
    kept, start = (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes(), tmp_path / "run" / name
    for more in ((), ("--overwrite",)):
        shown = refused(adapt("run", *more, checkpoint=start))
        assert "best.pth lies where this run writes its own; choose another --log" in shown
        assert (tmp_path / "run" / "checkpoints" / "best.pth").read_bytes() == kept
    assert main(adapt("next", checkpoint=start)) == 0


def test_threads_are_recorded_and_others_are_said(adapt, tmp_path: Path, monkeypatch, capsys) -> None:
    before, run, seen = torch.get_num_threads(), tmp_path / "run", []
    words = [word for word in adapt() if word != "--quiet"]
    cut_in_the_second_epoch(monkeypatch, words)
    assert json.loads((run / "config.json").read_text())["threads"] == before
    capsys.readouterr()
    train = Adaptation._train_epoch
    monkeypatch.setattr(Adaptation, "_train_epoch", lambda *args: seen.append(torch.get_num_threads()) or train(*args))
    assert main([*words, "--threads", str(before + 1)]) == 0
    assert seen == [before + 1]
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "warning" in line)
    assert f"warning: this run began with {before} threads of PyTorch and continues with {before + 1}" in line
    assert torch.get_num_threads() == before
    assert json.loads((run / "config.json").read_text())["threads"] == before
