from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import main


@pytest.fixture
def copy_of_domains(domains: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(domains, tmp_path / "domains"))


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command writes to standard error before it exits with status 2."""
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tllib-ancon: error: ")
    return lines[0]


def adapt(root: Path, checkpoint: Path, log: Path, *more: str) -> list[str]:
    start = ["-t", "dark", "--checkpoint", str(checkpoint), "--epochs", "1", "--log", str(log)]
    return ["adapt", *small_arguments(root), *start, *more]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--method", "ancno"], "did you mean 'ancon'"),
        (["--method", "shot-im+ancon"], "is not offered"),
        (["-d", "OfficeHme"], "did you mean 'OfficeHome'"),
        (["-t", "drak"], "did you mean 'dark'"),
        (["-a", "smal_cnn", "--override"], "did you mean 'small_cnn'"),
        (["--checkpoint", "none.pth"], "none.pth"),
        (["-a", "test_resnet"], "contradicts the run"),
        (["-a", "test_resnet", "--override"], "does not fit|backbone"),
        (["-b", "64"], "fewer than one batch of 64"),
        (["--smoothing", "2"], "smoothing"),
        (["--elr-coefficient", "-1", "--method", "elr"], "coefficient"),
        (["--quiet", "--verbose"], "exclude"),
    ],
)
def test_adapt_refuses(domains, source_checkpoint, tmp_path, capsys, more: list[str], message: str) -> None:
    import re

    shown = refused(adapt(domains, source_checkpoint, tmp_path / "run", *more), capsys)
    assert re.search(message, shown)
    assert not (tmp_path / "run").exists()


def test_missing_root(source_checkpoint: Path, tmp_path: Path, capsys) -> None:
    assert "is not a folder" in refused(adapt(tmp_path / "none", source_checkpoint, tmp_path / "run"), capsys)


def test_checkpoint_with_another_number_of_classes(copy_of_domains, source_checkpoint, tmp_path, capsys) -> None:
    (copy_of_domains / "image_list" / "classes.txt").write_text("red\ngreen\nblue\nblack\n")
    shown = refused(adapt(copy_of_domains, source_checkpoint, tmp_path / "run"), capsys)
    assert "3" in shown
    assert "4" in shown
    assert "classes" in shown


def test_empty_domain(copy_of_domains, source_checkpoint, tmp_path, capsys) -> None:
    (copy_of_domains / "image_list" / "dark.txt").write_text("\n")
    assert "dark.txt: the list is empty" in refused(adapt(copy_of_domains, source_checkpoint, tmp_path / "run"), capsys)


def test_label_out_of_range(copy_of_domains, source_checkpoint, tmp_path, capsys) -> None:
    with open(copy_of_domains / "image_list" / "dark.txt", "a") as file:
        file.write("dark/red/000.png 3\n")
    shown = refused(adapt(copy_of_domains, source_checkpoint, tmp_path / "run"), capsys)
    assert "dark.txt, line 49: label 3 is out of range" in shown


@pytest.mark.parametrize("workers", ["0", "1"])
def test_image_that_cannot_be_decoded(copy_of_domains, source_checkpoint, tmp_path, capsys, workers: str) -> None:
    (copy_of_domains / "dark" / "red" / "003.png").write_bytes(b"no picture")
    shown = refused(adapt(copy_of_domains, source_checkpoint, tmp_path / "run", "-j", workers), capsys)
    assert "dark/red/003.png: cannot be decoded" in shown


def test_weights_that_are_not_finite(domains, source_checkpoint, tmp_path, capsys) -> None:
    state = torch.load(source_checkpoint, weights_only=True)
    state["bottleneck.0.bias"][0] = torch.nan
    torch.save(state, tmp_path / "nan.pth")
    assert "not finite" in refused(adapt(domains, tmp_path / "nan.pth", tmp_path / "run"), capsys)


def test_loss_that_stops_being_finite_is_named_and_the_last_good_model_kept(
    domains, source_checkpoint, tmp_path, capsys
) -> None:
    shown = refused(adapt(domains, source_checkpoint, tmp_path / "run", "--lr", "1e30", "--epochs", "3"), capsys)
    assert "at epoch 1, step" in shown
    assert "latest.pth" in shown
    kept = torch.load(tmp_path / "run" / "checkpoints" / "latest.pth", weights_only=True)
    assert all(tensor.isfinite().all() for tensor in kept.values())


def test_pretrain_refuses_an_unlabelled_source(copy_of_domains, tmp_path, capsys) -> None:
    lists = copy_of_domains / "image_list" / "bright.txt"
    lists.write_text("".join(line.rsplit(" ", 1)[0] + "\n" for line in lists.read_text().splitlines()))
    shown = refused(["pretrain", *small_arguments(copy_of_domains), "--log", str(tmp_path / "run")], capsys)
    assert "no labels" in shown


def test_unknown_pretraining_method(domains, tmp_path, capsys) -> None:
    arguments = ["pretrain", *small_arguments(domains), "--log", str(tmp_path / "run"), "--method", "em"]
    assert "did you mean 'erm'" in refused(arguments, capsys)


def test_unknown_command(capsys) -> None:
    assert "did you mean 'adapt'" in refused(["adpt"], capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: COMMAND; tllib-ancon --help tells its arguments"),
        (["adapt"], "required: ROOT, -t/--target, --checkpoint; tllib-ancon adapt --help tells its arguments"),
        (["demo", "--seeds", "two"], "invalid int value: 'two'; tllib-ancon demo --help"),
        (["demo", "twice"], "unrecognized arguments: twice; tllib-ancon demo --help"),
        (["demo", "--ofx=1"], "unknown flag of tllib-ancon demo: '--ofx'"),
        (["adapt", "x", "-t", "D", "--checkpoint", "y", "--smothing", "1"], "did you mean '--smoothing'? Nearest of"),
    ],
)
def test_an_argument_that_is_missing_or_unknown(capsys, words: list[str], message: str) -> None:
    assert message in refused(words, capsys)


@pytest.mark.parametrize("command", ["pretrain", "adapt"])
@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--print-freq", ["0"]),
        ("--workers", ["-1"]),
        ("--batch-size", ["0", "-4"]),
        ("--epochs", ["0"]),
        ("--hold-out", ["1", "-0.1", "nan"]),
        ("--lr", ["0", "-1", "inf", "nan"]),
        ("--weight-decay", ["-1", "inf", "nan"]),
        ("--momentum", ["1", "-0.1", "nan"]),
        ("--lr-gamma", ["-1", "nan"]),
        ("--lr-decay", ["-1", "nan"]),
    ],
)
def test_numbers_out_of_range(domains, source_checkpoint, tmp_path, capsys, command, flag, values) -> None:
    words = {
        "adapt": adapt(domains, source_checkpoint, tmp_path / "run"),
        "pretrain": ["pretrain", *small_arguments(domains), "--epochs", "1", "--log", str(tmp_path / "run")],
    }
    for value in values:
        assert f"{flag} must be" in refused([*words[command], f"{flag}={value}"], capsys)
    assert not (tmp_path / "run").exists()


def test_pretrain_refuses_a_batch_of_one_with_batch_norm(domains, tmp_path, capsys) -> None:
    words = ["pretrain", *small_arguments(domains), "-b", "1", "--log", str(tmp_path / "run")]
    assert "batch-norm" in refused(words, capsys)
    assert not (tmp_path / "run").exists()


def test_a_source_model_that_diverged_in_its_last_step_is_not_kept(domains, tmp_path, capsys) -> None:
    words = ["pretrain", *small_arguments(domains), "-b", "40", "--epochs", "1", "--lr", "1e30"]
    assert "not finite after epoch 1" in refused([*words, "--log", str(tmp_path / "run")], capsys)
    assert not (tmp_path / "run" / "checkpoints" / "best.pth").exists()


@pytest.mark.parametrize("value", [("--adapt-lr", "-1"), ("--adapt-epochs", "0"), ("--adapt-hold-out", "1")])
def test_a_bad_second_stage_is_refused_before_the_first(domains, tmp_path, capsys, value: tuple[str, str]) -> None:
    words = ["run", *small_arguments(domains), "-t", "dark", "--pretrain", "erm", "--log", str(tmp_path / "run")]
    assert "the adaptation after the first stage: --" in refused([*words, *value], capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--image-size", "0"),
        ("--resize-size", "0"),
        ("--norm-mean", ".5", ".5"),
        ("--norm-std", "0", "0", "0"),
        ("--scale", "2", "1"),
    ],
)
def test_transforms_that_no_image_can_have(domains, source_checkpoint, tmp_path, capsys, words: list[str]) -> None:
    assert words[0] in refused(adapt(domains, source_checkpoint, tmp_path / "run", *words), capsys)
    assert not (tmp_path / "run").exists()


def evaluate(root: Path, checkpoint: Path, *more: str) -> list[str]:
    start = ["evaluate", str(root), "-d", "ImageList", "-t", "dark", "--checkpoint", str(checkpoint)]
    size = ["--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "16", "-j", "0"]
    return [*start, "-a", "small_cnn", "--bottleneck-dim", "8", *size, *more]


@pytest.mark.parametrize(
    ("words", "message"), [(("-j", "-1"), "--workers must be"), (("-b", "0"), "--batch-size must be")]
)
def test_evaluate_refuses_numbers_out_of_range(domains, source_checkpoint, capsys, words, message: str) -> None:
    assert message in refused(evaluate(domains, source_checkpoint, *words), capsys)


def test_evaluate_refuses_a_folder_that_is_missing_before_it_evaluates(
    domains, source_checkpoint, tmp_path, capsys, monkeypatch
) -> None:
    from tllib_ancon.training import passes

    monkeypatch.setattr(passes, "predict_domain", lambda *_: pytest.fail("evaluated first"))
    shown = refused(evaluate(domains, source_checkpoint, "--json", str(tmp_path / "none" / "x.json")), capsys)
    assert "does not exist" in shown


def test_evaluate_writes_its_numbers_whole(domains, source_checkpoint, tmp_path) -> None:
    import json

    assert main(evaluate(domains, source_checkpoint, "--json", str(tmp_path / "x.json"))) == 0
    assert "accuracy" in json.loads((tmp_path / "x.json").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
