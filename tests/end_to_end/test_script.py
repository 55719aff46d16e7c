"""``script PATH ... --method METHOD``: two stages, of which a finished one is not made again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.cutting import counting, cut_in_the_second_epoch
from tllib_ancon.cli.main import main

SCRIPT = """
import argparse, pathlib, shutil
parser = argparse.ArgumentParser()
parser.add_argument("root")
parser.add_argument("-d", "--data", default="Office31")
parser.add_argument("-s", "--source", nargs="+")
parser.add_argument("-t", "--target", nargs="+")
parser.add_argument("-a", "--arch", default="resnet18")
parser.add_argument("--train-resizing", default="default")
parser.add_argument("--val-resizing", default="default")
parser.add_argument("--resize-size", type=int, default=224)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("-j", "--workers", type=int, default=2)
parser.add_argument("--log", default="script")
args = parser.parse_args()
folder = pathlib.Path(args.log) / "checkpoints"
folder.mkdir(parents=True, exist_ok=True)
shutil.copy(pathlib.Path(__file__).with_name("start.pth"), folder / "latest.pth")
with open(pathlib.Path(args.log) / "trained.txt", "a") as file:
    print(args.epochs, file=file)
"""


@pytest.fixture
def script(source_checkpoint: Path, tmp_path: Path) -> Path:
    """Stands for one of TLLib's: leaves a source model as ``latest.pth`` and counts how often it has trained."""
    shutil.copy(source_checkpoint, tmp_path / "start.pth")
    (tmp_path / "cdan.py").write_text(SCRIPT)
    return tmp_path / "cdan.py"


@pytest.fixture
def words(script: Path, domains: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """The script's command with these flags after ``--method ancon``."""

    def words(*ours: str, epochs: int = 7) -> list[str]:
        return [
            *("script", str(script), str(domains), "-d", "ImageList", "-s", "bright", "-t", "dark", "-a", "small_cnn"),
            *("--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "16", "-j", "0"),
            *("--epochs", str(epochs), "--log", str(tmp_path / "log")),
            *("--method", "ancon", "--adapt-epochs", "2", "--adapt-batch-size", "8", "--quiet", *ours),
        ]

    return words


def trained(tmp_path: Path) -> int:
    return len((tmp_path / "log" / "trained.txt").read_text().splitlines())


def epochs_kept(tmp_path: Path) -> list[int]:
    lines = (tmp_path / "log" / "adapt" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_the_same_command_goes_on_with_the_second_stage(words, tmp_path, monkeypatch, capsys, more) -> None:
    cut_in_the_second_epoch(monkeypatch, words(*more))
    assert (trained(tmp_path), epochs_kept(tmp_path)) == (1, [0, 1])
    epochs = counting(monkeypatch)
    capsys.readouterr()
    assert main(words(*more)) == 0
    assert (trained(tmp_path), epochs, epochs_kept(tmp_path)) == (1, [2], [0, 1, 2])
    assert "has run here before; going on from" in capsys.readouterr().err


def test_a_finished_one_says_so(words, tmp_path, monkeypatch, capsys) -> None:
    assert main(words()) == 0
    shown = capsys.readouterr().out
    result = (tmp_path / "log" / "adapt" / "result.json").read_bytes()
    epochs = counting(monkeypatch)
    loud = [word for word in words() if word != "--quiet"]
    assert main(loud) == 0
    again = capsys.readouterr()
    assert (trained(tmp_path), epochs, again.out) == (1, [], shown)
    assert f"{tmp_path / 'log' / 'adapt'} holds this run already, finished" in again.err
    assert (tmp_path / "log" / "adapt" / "result.json").read_bytes() == result


@pytest.mark.parametrize("cut", [True, False])
def test_overwrite_starts_both_stages_anew(words, tmp_path, monkeypatch, cut: bool) -> None:
    if cut:
        cut_in_the_second_epoch(monkeypatch, words())
    else:
        assert main(words("--overwrite")) == 0
    epochs = counting(monkeypatch)
    assert main(words("--overwrite")) == 0
    assert (trained(tmp_path), epochs) == (2, [1, 2])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("checkpoints/latest.pth", "of a later training"),
        ("script.json", ""),
        ("script.json", "[]"),
        ("script.json", '{"script": "cdan.py", "words": {}, "sha256": 3}'),
        (None, "other arguments"),
    ],
)
def test_a_used_log_is_refused_before_training(words, tmp_path, capsys, file: str | None, content: str) -> None:
    assert main(words()) == 0
    if file is not None:
        (tmp_path / "log" / file).write_text(content)
    capsys.readouterr()
    assert main(words(epochs=8 if file is None else 7)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{tmp_path / 'log' / 'adapt'} holds an adaptation of another command" in line
    assert "choose another --log, or pass --overwrite after --method" in line
    assert trained(tmp_path) == 1


def test_a_script_that_was_cut_off_runs_again(script, words, tmp_path, capsys) -> None:
    whole = script.read_text()
    script.write_text(whole.replace("folder = ", "raise RuntimeError('cut')\nfolder = "))
    assert main(words()) == 1
    assert "RuntimeError: cut" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()
    script.write_text(whole)
    assert main(words()) == 0
    assert (tmp_path / "log" / "adapt" / "result.json").is_file()


def test_the_default_log_of_the_script_is_known_too(words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    without = words()
    del without[without.index("--log") : without.index("--method")]
    assert main(without) == 0
    capsys.readouterr()
    assert main(without) == 0
    assert "has run here before" in capsys.readouterr().err
    assert len((tmp_path / "script" / "trained.txt").read_text().splitlines()) == 1


@pytest.mark.parametrize("flag", ["--epochs", "--batch-size", "--lr"])
def test_a_bare_flag_after_the_method_names_the_flag_of_the_adaptation(words, tmp_path, capsys, flag: str) -> None:
    assert main(words(flag, "3")) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"--adapt-{flag[2:]}" in line
    assert not (tmp_path / "log").exists()


def test_a_setting_that_the_adaptation_refuses_is_found_before_the_script_runs(words, tmp_path, capsys) -> None:
    assert main(words("--smoothing", "2")) == 2
    assert "--smoothing must be at least 0" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()
