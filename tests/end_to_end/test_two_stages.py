"""``run`` and ``script``: a source model and its adaptation by one command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.test_bad_input import refused
from tllib_ancon.cli.main import main
from tllib_ancon.config import PretrainConfig
from tllib_ancon.data.demo import handwritten_digits, rendered_digits

PRETRAINING = ("erm", "cdan", "mdd")


@pytest.fixture(scope="session")
def demo_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the demo's pictures."""
    root = tmp_path_factory.mktemp("digits")
    (root / "image_list").mkdir()
    (root / "image_list" / "classes.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    some = {"rendered": rendered_digits(images_per_class=8), "handwritten": list(handwritten_digits())[:100]}
    for name, pictures in some.items():
        (root / name).mkdir()
        lines = []
        for number, (picture, label) in enumerate(pictures):
            picture.save(root / name / f"{number}.png")
            lines.append(f"{name}/{number}.png {label}\n")
        (root / "image_list" / f"{name}.txt").write_text("".join(lines))
    return root


def run_arguments(root: Path, log: Path, method: str, *more: str) -> list[str]:
    """A few steps of both stages."""
    length = ["--epochs", "2", "-i", "3"] if method != "erm" else ["--epochs", "2"]
    second = ["--adapt-epochs", "2", "--adapt-batch-size", "16"]
    command = ["run", *small_arguments(root), "-t", "dark", "--pretrain", method]
    return [*command, *length, *second, "--log", str(log), *more]


@pytest.mark.parametrize("method", ["cdan", "mdd"])
def test_smoke_on_the_demo_digits(demo_digits: Path, tmp_path: Path, method: str, capsys) -> None:
    arguments = [
        *("run", str(demo_digits), "-d", "ImageList", "-s", "rendered", "-t", "handwritten"),
        *("-a", "small_cnn", "--scratch", "--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "32"),
        *("--no-hflip", "-j", "0", "--quiet"),
        *("--pretrain", method, "--epochs", "1", "-i", "4", "-b", "16", "--method", "ancon", "--adapt-epochs", "1"),
    ]
    assert main([*arguments, "--log", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["pretrain"]["method"] == method
    assert result["method"] == "ancon"
    assert result["start"]["accuracy"] == result["pretrain"]["last"]["accuracy"]
    assert 0 <= result["selected"]["accuracy"] <= 100
    shown = capsys.readouterr().out
    assert method in shown
    assert "selected by infomax" in shown


@pytest.mark.parametrize("method", PRETRAINING)
def test_run_makes_the_runs_of_its_two_commands(domains: Path, tmp_path: Path, method: str) -> None:
    more = ["--method", "self-training", "--lr", "0.02", "--adapt-lr", "0.005", "--adapt-hold-out", "0.2"]
    assert main(run_arguments(domains, tmp_path / "both", method, *more)) == 0
    length = ["--epochs", "2"] + (["-i", "3", "-t", "dark"] if method != "erm" else ["-t", "dark"])
    first, both = tmp_path / "first", tmp_path / "both"
    length += ["--method", method, "--lr", "0.02", "--log", str(first)]
    assert main(["pretrain", *small_arguments(domains), *length]) == 0
    start = first / "checkpoints" / ("best.pth" if method == "erm" else "latest.pth")
    words = [word for word in small_arguments(domains) if word != "--scratch"]
    second = ["-t", "dark", "--checkpoint", str(start), "--epochs", "2", "--lr", "0.005", "--hold-out", "0.2"]
    assert main(["adapt", *words, *second, "--method", "self-training", "--log", str(tmp_path / "second")]) == 0
    for stage, alone in (("pretrain", first), ("adapt", tmp_path / "second")):
        together, apart = (
            torch.load(run / "checkpoints" / "latest.pth", weights_only=True) for run in (both / stage, alone)
        )
        assert all(torch.equal(together[name], apart[name]) for name in apart)
        recorded = (json.loads((run / "config.json").read_text()) for run in (both / stage, alone))
        here, there = ({k: v for k, v in config.items() if k not in ("log", "checkpoint")} for config in recorded)
        assert here == there


@pytest.fixture
def adapted_without_first_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training a source model becomes an error."""
    from tllib_ancon.training.source_training import SourceTraining

    monkeypatch.setattr(SourceTraining, "_train_epoch", lambda *_: pytest.fail("the first stage was made again"))


def test_run_goes_on_where_it_was_cut_off(domains: Path, tmp_path: Path, request, capsys) -> None:
    """After the first stage, and after the whole."""
    from tllib_ancon.training.adaptation import Adaptation

    arguments = run_arguments(domains, tmp_path, "cdan")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Adaptation, "_train_epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(arguments) != 0
    assert not (tmp_path / "result.json").exists()
    request.getfixturevalue("adapted_without_first_stage")
    assert main(arguments) == 0
    first = (tmp_path / "result.json").read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Adaptation, "_train_epoch", lambda *_: pytest.fail("the second stage was made again"))
        assert main(arguments) == 0
    assert (tmp_path / "result.json").read_text() == first


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--method", "ancno"], "did you mean 'ancon'"),
        (["--smoothing", "2"], "smoothing"),
        (["--pretrain", "cdna"], "did you mean 'cdan'"),
        (["--margin", "3"], "--margin is an option of --pretrain mdd, not of cdan"),
        (["--hold-out", "0.2"], "--hold-out is an option of --pretrain erm, not of cdan"),
        (["--adapt-batch-size", "64"], "pass a smaller --adapt-batch-size"),
        (["-b", "61"], "fewer than one batch of 61"),
        (["-t", "drak"], "did you mean 'dark'"),
        (["-i", "0"], "--iters-per-epoch must be at least 1"),
        (["--margin", "0", "--pretrain", "mdd"], "--margin must be above 0"),
    ],
)
def test_run_refuses_before_it_trains(domains, tmp_path, capsys, more: list[str], message: str) -> None:
    assert message in refused(run_arguments(domains, tmp_path / "run", "cdan", *more), capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_run_refuses_the_directory_of_another_command(domains, source_checkpoint, tmp_path, capsys, overwrite) -> None:
    log = source_checkpoint.parent.parent
    before = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    message = refused([*run_arguments(domains, log, "erm"), *overwrite], capsys)
    assert "holds config.json and checkpoints of a run of another command" in message
    assert {path: path.read_bytes() for path in log.rglob("*") if path.is_file()} == before


def test_the_source_of_an_adaptation_is_a_domain_but_needs_no_image(
    domains, source_checkpoint, tmp_path, capsys
) -> None:
    root = Path(shutil.copytree(domains, tmp_path / "domains"))
    shutil.rmtree(root / "bright")
    words = ["adapt", *small_arguments(root), "-t", "dark", "--checkpoint", str(source_checkpoint), "--epochs", "1"]
    words += ["--log", str(tmp_path / "run")]
    misspelt = ["brihgt" if word == "bright" else word for word in words]
    assert "source domain of ImageList: 'brihgt'; did you mean 'bright'" in refused(misspelt, capsys)
    assert main(words) == 0


@pytest.mark.parametrize("inputs", [None, [], "text"])
def test_a_configuration_without_inputs_beside_a_checkpoint_is_passed_over(
    domains, source_checkpoint, tmp_path, inputs: object
) -> None:
    log = Path(shutil.copytree(source_checkpoint.parent.parent, tmp_path / "source"))
    (log / "config.json").write_text(json.dumps({"command": "pretrain", "inputs": inputs}))
    words = ["-t", "dark", "--checkpoint", str(log / "checkpoints" / "best.pth"), "--epochs", "1"]
    assert main(["adapt", *small_arguments(domains), *words, "--log", str(tmp_path / "run")]) == 0


def test_pretrain_needs_a_target_for_cdan(domains: Path, tmp_path: Path, capsys) -> None:
    arguments = ["pretrain", *small_arguments(domains), "--method", "cdan", "--log", str(tmp_path / "run")]
    assert "pass --target" in refused(arguments, capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("erm", {"lr": 0.01, "epochs": 50}),
        ("cdan", {"lr": 0.01, "margin": None}),
        ("mdd", {"lr": 0.004, "margin": 4.0}),
    ],
)
def test_defaults_of_the_method_are_recorded(method: str, expected: dict[str, float | None]) -> None:
    config = PretrainConfig(root="data", source=["A", "W"], target=["W"], method=method)
    assert {name: config.to_dict().get(name) for name in expected} == expected
    assert PretrainConfig(method=method, lr=0.5).lr == 0.5


SCRIPT = """
import argparse, pathlib, shutil, sys

parser = argparse.ArgumentParser()
parser.add_argument("root")
for flag in ("-d --data", "-a --arch", "--log", "--train-resizing", "--val-resizing", "--left", "--seed"):
    parser.add_argument(*flag.split())
parser.add_argument("-s", "--source", nargs="+")
parser.add_argument("-t", "--target", nargs="+")
parser.add_argument("--resize-size", type=int)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("-j", "--workers", type=int, default=0)
for flag in ("--no-hflip", "--scratch", "--no-pool"):
    parser.add_argument(flag, action="store_true")
args = parser.parse_args()
if args.left == "failure":
    sys.exit("the script fails")
folder = pathlib.Path(args.log) / "checkpoints"
folder.mkdir(parents=True)
if args.left != "nothing":
    for name in ("latest.pth", "best.pth"):
        shutil.copy(args.left, folder / name)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """With the arguments of TLLib's scripts; it leaves the checkpoint named by ``--left``."""
    path = tmp_path / "cdan.py"
    path.write_text(SCRIPT)
    return path


def script_arguments(script: Path, domains: Path, left: object, log: Path) -> list[str]:
    images = ["--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "16", "--no-hflip"]
    domain = [str(domains), "-d", "ImageList", "-s", "bright", "-t", "dark", "-a", "small_cnn"]
    return ["script", str(script), *domain, *images, "--left", str(left), "--log", str(log)]


ADAPTATION = ["--method", "ancon", "--adapt-epochs", "1", "--adapt-batch-size", "16", "--smoothing", "0.2", "--quiet"]


def test_script_then_adaptation(script, domains, source_checkpoint, tmp_path, capsys) -> None:
    assert main([*script_arguments(script, domains, source_checkpoint, tmp_path / "log"), *ADAPTATION]) == 0
    config = json.loads((tmp_path / "log" / "adapt" / "config.json").read_text())
    of_the_script = {"arch": "small_cnn", "resize_size": 16, "no_hflip": True}
    of_the_adaptation = {"smoothing": 0.2, "epochs": 1, "lr": 0.01, "start": "latest"}
    assert (of_the_script | of_the_adaptation).items() <= config.items()
    assert Path(config["checkpoint"]).name == "latest.pth"
    assert "selected by infomax" in capsys.readouterr().out


def test_a_start_chosen_on_target_labels_is_said_and_recorded(
    script, domains, source_checkpoint, tmp_path, capsys
) -> None:
    arguments = script_arguments(script, domains, source_checkpoint, tmp_path / "log")
    assert main([*arguments, *ADAPTATION, "--start", "best"]) == 0
    assert "best.pth was chosen on target labels" in capsys.readouterr().err
    assert json.loads((tmp_path / "log" / "adapt" / "config.json").read_text())["start"] == "best"


def test_script_without_method_only_runs_it(script, domains, source_checkpoint, tmp_path) -> None:
    assert main(script_arguments(script, domains, source_checkpoint, tmp_path / "log")) == 0
    assert not (tmp_path / "log" / "adapt").exists()


def test_nothing_is_adapted_after_a_failure(script, domains, tmp_path, capsys) -> None:
    assert main([*script_arguments(script, domains, "failure", tmp_path / "log"), *ADAPTATION]) == 1
    assert "the script fails" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


def test_script_that_left_no_checkpoint(script, domains, tmp_path, capsys) -> None:
    assert main([*script_arguments(script, domains, "nothing", tmp_path / "log"), *ADAPTATION]) == 2
    assert "latest.pth; did it train" in capsys.readouterr().err


def test_script_refuses_a_bad_method_before_it_runs_the_script(script, domains, tmp_path, capsys) -> None:
    arguments = script_arguments(script, domains, "failure", tmp_path / "log")
    assert "did you mean 'ancon'" in refused([*arguments, "--method", "ancno"], capsys)


def test_a_script_of_another_kind(domains, tmp_path, capsys) -> None:
    path = tmp_path / "other.py"
    path.write_text("print('hello')\n")
    assert main(["script", str(path), *ADAPTATION]) == 2
    assert "is for TLLib's image classification scripts" in capsys.readouterr().err


def test_run_on_an_unlabelled_target(domains: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(domains, tmp_path / "domains"))
    lists = root / "image_list" / "dark.txt"
    lists.write_text("".join(line.rsplit(" ", 1)[0] + "\n" for line in lists.read_text().splitlines()))
    assert main(run_arguments(root, tmp_path / "run", "cdan")) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert "accuracy" not in result["selected"]
    assert "accuracy" not in result["pretrain"]["last"]
