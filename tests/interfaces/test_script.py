"""``script PATH ... --method METHOD``: two stages, of which a finished one is not made again."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cutting import counting, cut_in_the_second_epoch
from tests.support.json_files import read_json
from tests.support.refusals import REFUSED
from tllib_ancon.cli.main import main

SCRIPT = """
import argparse, pathlib, shutil, sys
parser = argparse.ArgumentParser()
parser.add_argument("root")
for flag in ("--left", "--seed", "-d --data", "-a --arch"):
    parser.add_argument(*flag.split())
parser.add_argument("-s", "--source", nargs="+")
parser.add_argument("-t", "--target", nargs="+")
parser.add_argument("--train-resizing", default="default")
parser.add_argument("--val-resizing", default="default")
parser.add_argument("--resize-size", type=int, default=224)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("-j", "--workers", type=int, default=2)
parser.add_argument("--log", default="script")
for flag in ("--no-hflip", "--scratch", "--no-pool"):
    parser.add_argument(flag, action="store_true")
args = parser.parse_args()
if args.left == "failure":
    sys.exit("the script fails")
folder = pathlib.Path(args.log) / "checkpoints"
folder.mkdir(parents=True, exist_ok=True)
for name in () if args.left == "nothing" else ("latest.pth", "best.pth"):
    shutil.copy(pathlib.Path(__file__).with_name("start.pth"), folder / name)
with open(pathlib.Path(args.log) / "trained.txt", "a") as file:
    print(args.epochs, file=file)
"""


@pytest.fixture
def script(source_checkpoint, tmp_path):
    """Stands for one of TLLib's: leaves a source model as ``latest.pth`` and counts how often it has trained."""
    shutil.copy(source_checkpoint, tmp_path / "start.pth")
    (tmp_path / "cdan.py").write_text(SCRIPT)
    return tmp_path / "cdan.py"


@pytest.fixture
def words(script, domains, tmp_path):
    """The script's command with these flags after ``--method ancon``."""

    def words(*ours, epochs=7, left="model"):
        second = ["--method", "ancon", "--epochs", "2", "--batch-size", "8", "--quiet", *ours]
        return [
            *("script", str(script), str(domains), "-d", "ImageList", "-s", "bright", "-t", "dark", "-a", "small_cnn"),
            *("--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "16", "-j", "0", "--no-hflip"),
            *("--epochs", str(epochs), "--left", left, "--log", str(tmp_path / "log")),
            *second,
        ]

    return words


def trained(tmp_path):
    return len((tmp_path / "log" / "trained.txt").read_text().splitlines())


def epochs_kept(tmp_path):
    lines = (tmp_path / "log" / "adapt" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def test_script_then_adaptation(words, tmp_path, capsys):
    (tmp_path / "own.toml").write_text("smoothing = 0.2\nquiet = true\n")
    command = words("--config", str(tmp_path / "own.toml"))
    assert main([word for word in command if word != "--quiet"]) == 0
    config = read_json(tmp_path / "log" / "adapt" / "config.json")
    of_the_script = {"arch": "small_cnn", "image_size": 16, "no_hflip": True}
    of_the_adaptation = {"smoothing": 0.2, "quiet": True, "epochs": 2, "lr": 0.01}
    assert (of_the_script | of_the_adaptation).items() <= config.items()
    assert Path(config["checkpoint"]).name == "latest.pth"
    assert "selected by infomax" in capsys.readouterr().out


@pytest.mark.parametrize(("left", "more", "status", "message"), REFUSED["adaptations of scripts"])
def test_what_ends_it(words, tmp_path, capsys, left, more, status, message):
    """Bad settings of the adaptation before the script runs."""
    assert main(words(*more, left=left)) == status
    assert message in capsys.readouterr().err
    assert (tmp_path / "log").exists() == (left == "nothing")


def test_a_script_without_its_log_is_refused_before_it_runs(words, tmp_path, refused):
    without = words()
    del without[without.index("--log") : without.index("--method")]
    assert "the arguments of the script have no --log; pass --log DIR before --method" in refused(without)
    assert not (tmp_path / "script").exists()


def test_the_adaptation_begins_at_the_last_method(tmp_path, capsys):
    """The script before it runs; then the adaptation misses the arguments of TLLib's scripts."""
    script = tmp_path / "own.py"
    parsing = "parser.add_argument('--method')\nparser.add_argument('--log')\nprint(parser.parse_args().method)"
    script.write_text(f"import argparse\nparser = argparse.ArgumentParser()\n{parsing}")
    assert main(["script", str(script), "--log", str(tmp_path), "--method", "theirs", "--method", "ancon"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "theirs\n"
    assert "the script has no --root, --data, --target, --arch; leave --method out" in shown.err
    assert main(["script", str(script)]) == 0
    assert capsys.readouterr().out == "None\n"


def test_the_same_command_goes_on_with_the_second_stage(words, tmp_path, monkeypatch, capsys):
    cut_in_the_second_epoch(monkeypatch, words())
    assert trained(tmp_path) == 1
    assert epochs_kept(tmp_path) == [0, 1]
    epochs = counting(monkeypatch)
    capsys.readouterr()
    assert main(words()) == 0
    assert trained(tmp_path) == 1
    assert epochs == [2]
    assert epochs_kept(tmp_path) == [0, 1, 2]
    assert "has run here before; adapting its model" in capsys.readouterr().err


def test_a_used_log_is_refused_before_training(words, tmp_path, refused):
    assert main(words()) == 0
    for epochs in (8, 7):
        line = refused(words(epochs=epochs))
        (tmp_path / "log" / "script.json").write_text("[]")
        assert f"{tmp_path / 'log' / 'adapt'} holds an adaptation of another command" in line
        assert "choose another --log, or pass --overwrite after --method" in line
        assert trained(tmp_path) == 1
