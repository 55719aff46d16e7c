"""What becomes of a run when its data, its model or its numbers are at the edge, or broken."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.domains_on_disk import small_arguments
from tests.end_to_end.killable import differences
from tllib_ancon import methods
from tllib_ancon.cli.main import main
from tllib_ancon.methods import Method
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.reproducibility import make_reproducible

TESTED = ("self-training", "elr", "ancon", "gce", "nrc+ancon", "shot+ancon", "aad+ancon")


@pytest.fixture
def copied(domains: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(domains, tmp_path / "domains"))


def adapt(root: Path, checkpoint: Path, log: Path, *more: str) -> list[str]:
    start = ["-t", "dark", "--checkpoint", str(checkpoint), "--epochs", "2", "--log", str(log)]
    return ["adapt", *small_arguments(root), *start, *more]


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def rewrite(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


def checkpoint(log: Path, name: str = "latest.pth") -> dict[str, torch.Tensor]:
    return torch.load(log / "checkpoints" / name, weights_only=True)


def assert_finite(log: Path) -> None:
    lines = [json.loads(line) for line in (log / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(len(lines)))
    assert all(np.isfinite(line["infomax"]) for line in lines)
    assert all(tensor.isfinite().all() for tensor in checkpoint(log).values())


# Images


@pytest.mark.parametrize("workers", ["0", "2"])
def test_corrupt_images_are_skipped_counted_and_listed(
    copied: Path, source_checkpoint: Path, tmp_path: Path, capsys, workers: str
) -> None:
    broken = {"red/003.png": b"no picture", "green/010.png": b"", "blue/020.png": None}
    for name, content in broken.items():
        path = copied / "dark" / name
        path.unlink() if content is None else path.write_bytes(content)
    words = adapt(copied, source_checkpoint, tmp_path / "run", "--skip-corrupt", "-j", workers)
    words.remove("--quiet")
    assert main(words) == 0
    assert "3 of the 48 images of domain dark are left out" in capsys.readouterr().err
    images = json.loads((tmp_path / "run" / "config.json").read_text())["inputs"]["images"]["dark"]
    assert images["number"] == 45
    assert len(images["skipped"]) == 3
    assert all(any(name in reason for reason in images["skipped"]) for name in broken)


def test_skipping_equals_a_list_without_the_corrupt_images(
    copied: Path, source_checkpoint: Path, tmp_path: Path
) -> None:
    (copied / "dark" / "red" / "003.png").write_bytes(b"no picture")
    assert main(adapt(copied, source_checkpoint, tmp_path / "skipped", "--skip-corrupt")) == 0
    rewrite(copied / "image_list" / "dark.txt", lambda lines: [line for line in lines if "red/003" not in line])
    assert main(adapt(copied, source_checkpoint, tmp_path / "listed")) == 0
    assert differences(checkpoint(tmp_path / "skipped"), checkpoint(tmp_path / "listed")) == []


def test_a_domain_of_corrupt_images_alone_is_refused(copied, source_checkpoint, tmp_path, capsys) -> None:
    for path in (copied / "dark").rglob("*.png"):
        path.write_bytes(b"")
    shown = refusal(adapt(copied, source_checkpoint, tmp_path / "run", "--skip-corrupt"), capsys)
    assert "not one of its 48 images can be decoded" in shown


def test_a_source_is_skipped_through_too(copied: Path, tmp_path: Path, capsys) -> None:
    (copied / "bright" / "red" / "003.png").write_bytes(b"")
    words = ["pretrain", *small_arguments(copied), "--epochs", "1", "--log", str(tmp_path / "run")]
    assert "bright/red/003.png: cannot be decoded" in refusal(words, capsys)
    assert main([*words, "--skip-corrupt", "--overwrite"]) == 0


# Lists and classes


def test_a_class_may_be_missing_in_the_target(copied: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    rewrite(copied / "image_list" / "dark.txt", lambda lines: [line for line in lines if not line.endswith(" 2")])
    for method in TESTED:
        log = tmp_path / method
        assert main(adapt(copied, source_checkpoint, log, "-b", "8", "--method", method)) == 0
        assert_finite(log)
        assert json.loads((log / "result.json").read_text())["last"]["per_class_accuracy"][2] is None


def test_class_orders_that_differ_between_source_and_target_are_refused(
    copied: Path, source_checkpoint: Path, tmp_path: Path, capsys
) -> None:
    lists = copied / "image_list"
    swapped = {"0": "1", "1": "0", "2": "2"}
    rewrite(lists / "dark.txt", lambda lines: [line[:-1] + swapped[line[-1]] for line in lines])
    (lists / "classes.txt").write_text("green\nred\nblue\n")
    shown = refusal(adapt(copied, source_checkpoint, tmp_path / "run"), capsys)
    assert "was trained with 'red' as class 0, which is 'green' in domain dark" in shown
    (lists / "classes.txt").unlink()
    shown = refusal(adapt(copied, source_checkpoint, tmp_path / "run"), capsys)
    assert "'green' has label 0 in dark and 1 in the run" in shown


def test_a_checkpoint_of_another_dataset_with_as_many_classes_is_refused(
    copied: Path, source_checkpoint: Path, tmp_path: Path, capsys
) -> None:
    shutil.move(copied / "dark" / "red", copied / "dark" / "mug")
    rewrite(copied / "image_list" / "dark.txt", lambda lines: [line.replace("dark/red", "dark/mug") for line in lines])
    (copied / "image_list" / "classes.txt").write_text("mug\ngreen\nblue\n")
    shown = refusal(adapt(copied, source_checkpoint, tmp_path / "run"), capsys)
    assert "is of another dataset" in shown


def test_a_run_whose_list_or_start_model_changed_is_refused(
    copied: Path, source_checkpoint: Path, tmp_path: Path, capsys
) -> None:
    start = Path(shutil.copy(source_checkpoint, tmp_path / "start.pth"))
    words = adapt(copied, start, tmp_path / "run")
    assert main(words) == 0
    state = torch.load(start, weights_only=True)
    torch.save({**state, "bottleneck.0.bias": state["bottleneck.0.bias"] + 1}, start)
    assert "inputs.checkpoint_sha256" in refusal(words, capsys)
    torch.save(state, start)
    rewrite(copied / "image_list" / "dark.txt", lambda lines: lines[:-1])
    assert "inputs.images.dark.number: 48 there, 47 now" in refusal(words, capsys)


# Sizes


def one_image(root: Path) -> None:
    rewrite(root / "image_list" / "dark.txt", lambda lines: lines[:1])


def test_one_image_is_fewer_than_a_batch_that_batch_norm_needs(copied, source_checkpoint, tmp_path, capsys) -> None:
    one_image(copied)
    assert "batch-norm" in refusal(adapt(copied, source_checkpoint, tmp_path / "run", "-b", "1"), capsys)
    assert "fewer than one batch of 2" in refusal(adapt(copied, source_checkpoint, tmp_path / "run", "-b", "2"), capsys)


def test_a_batch_of_one_with_batch_norm_is_refused(domains, source_checkpoint, tmp_path, capsys) -> None:
    shown = refusal(adapt(domains, source_checkpoint, tmp_path / "run", "-b", "1"), capsys)
    assert "--batch-size of 2 or more" in shown


def source_of(root: Path, classes: int, log: Path) -> Path:
    """A source model of the first classes, the only ones that are left."""
    lists = root / "image_list"
    for name in ("bright", "dark"):
        rewrite(lists / f"{name}.txt", lambda lines: [line for line in lines if int(line[-1]) < classes])
    rewrite(lists / "classes.txt", lambda lines: lines[:classes])
    assert main(["pretrain", *small_arguments(root), "-b", "8", "--epochs", "1", "--log", str(log)]) == 0
    return log / "checkpoints" / "best.pth"


def test_two_classes(copied: Path, tmp_path: Path) -> None:
    start = source_of(copied, 2, tmp_path / "source")
    for method in TESTED:
        log = tmp_path / method
        assert main(adapt(copied, start, log, "-b", "8", "--method", method)) == 0
        assert_finite(log)


def test_one_class_is_refused(copied: Path, tmp_path: Path, capsys) -> None:
    start = source_of(copied, 1, tmp_path / "source")
    assert "dark has one class" in refusal(adapt(copied, start, tmp_path / "run", "-b", "8"), capsys)


# Predictions


def test_all_predictions_equal(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    state = torch.load(source_checkpoint, weights_only=True)
    state["head.parametrizations.weight.original0"].zero_()
    state["head.bias"].zero_()
    torch.save(state, tmp_path / "equal.pth")
    for method in TESTED:
        log = tmp_path / method
        assert main(adapt(domains, tmp_path / "equal.pth", log, "--method", method)) == 0
        assert_finite(log)


def test_no_confident_sample_in_any_batch(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    for method in ("ancon", "gce+ancon", "nrc+ancon"):
        log = tmp_path / method
        more = ("--method", method, "--weighting", "fixed", "--fixed-threshold", "1")
        assert main(adapt(domains, source_checkpoint, log, *more, "--lr", "1e-4")) == 0
        assert_finite(log)
        assert json.loads((log / "result.json").read_text())["last"]["votes"] == 0


# Numbers


@pytest.mark.parametrize("method", ["self-training", "gce", "nrc", "shot"])
def test_no_smoothing_equals_the_base_method_bit_for_bit(
    domains: Path, source_checkpoint: Path, tmp_path: Path, method: str
) -> None:
    anchored = "ancon" if method == "self-training" else f"{method}+ancon"
    for name, more in ((method, ()), (anchored, ("--smoothing", "0"))):
        assert main(adapt(domains, source_checkpoint, tmp_path / name, "--method", name, *more)) == 0
    for file in ("best.pth", "latest.pth"):
        assert differences(checkpoint(tmp_path / method, file), checkpoint(tmp_path / anchored, file)) == []


def test_full_smoothing(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    for method in ("ancon", "gce+ancon", "nrc+ancon"):
        assert main(adapt(domains, source_checkpoint, tmp_path / method, "--method", method, "--smoothing", "1")) == 0
        assert_finite(tmp_path / method)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_after_full_precision(
    domains: Path, source_checkpoint: Path, tmp_path: Path, precision: str
) -> None:
    assert main(adapt(domains, source_checkpoint, tmp_path / "full")) == 0
    for method in ("ancon", "nrc+ancon"):
        words = adapt(domains, source_checkpoint, tmp_path / method, "--method", method)
        assert main([*words, "--mixed-precision", precision]) == 0
        assert_finite(tmp_path / method)


@pytest.mark.parametrize("method", ["ancon", "nrc+ancon"])
def test_a_loss_that_is_not_finite_stops_with_its_step_and_the_state_before_it_is_good(
    domains: Path, source_checkpoint: Path, tmp_path: Path, monkeypatch, capsys, method: str
) -> None:
    more = ("--method", method, "-b", "8", "-p", "1")
    assert main(adapt(domains, source_checkpoint, tmp_path / "whole", *more)) == 0
    with monkeypatch.context() as patch:
        forward, calls = Method.forward, []

        def faulty(self: Method, *args: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            loss = forward(self, *args)
            return loss * torch.nan if len(calls) == 8 else loss

        patch.setattr(Method, "forward", faulty)
        shown = refusal(adapt(domains, source_checkpoint, tmp_path / "cut", *more), capsys)
    assert "not finite at epoch 2, step 3" in shown
    assert "of epoch 1" in shown
    assert main(adapt(domains, source_checkpoint, tmp_path / "cut", *more)) == 0
    for file in ("best.pth", "latest.pth"):
        assert differences(checkpoint(tmp_path / "whole", file), checkpoint(tmp_path / "cut", file)) == []


def test_weights_that_are_not_finite_are_refused_before_the_first_epoch(
    domains: Path, source_checkpoint: Path, tmp_path: Path, capsys
) -> None:
    state = torch.load(source_checkpoint, weights_only=True)
    state["bottleneck.0.bias"][0] = torch.inf
    torch.save(state, tmp_path / "inf.pth")
    assert "the start model's logits" in refusal(adapt(domains, tmp_path / "inf.pth", tmp_path / "run"), capsys)
    assert not (tmp_path / "run" / "checkpoints" / "latest.pth").exists()


@pytest.mark.parametrize("words", [("--epochs", "0"), ("-b", "0"), ("-p", "0"), ("--hold-out", "1"), ("--seed", "-1")])
def test_numbers_out_of_range_are_refused(domains, source_checkpoint, tmp_path, capsys, words: tuple[str, str]) -> None:
    assert "must be at least" in refusal(adapt(domains, source_checkpoint, tmp_path / "run", *words), capsys)


@pytest.mark.parametrize("method", ["erm", "cdan"])
def test_a_source_loss_that_is_not_finite_stops_with_its_step(domains, tmp_path, capsys, method: str) -> None:
    words = ["pretrain", *small_arguments(domains), "--lr", "1e30", "-p", "1", "--log", str(tmp_path / "run")]
    target = ["-t", "dark", "--method", "cdan", "-i", "5"] if method == "cdan" else []
    assert "not finite at epoch 1, step" in refusal([*words, *target, "--epochs", "2"], capsys)


# Continuing, by method


CHOICES = (
    "ancon --confidence mc-dropout",
    "ancon --confidence belief-matching",
    "ancon --storage sparse",
    "gce+ancon-auto --prediction soft",
    "ancon --schedule full",
    "ancon --prediction soft --convention paper",
    "nrc+ancon --search cached",
)


@pytest.mark.parametrize("method", [*methods.names(), *CHOICES])
def test_every_method_continues_after_an_epoch_as_if_it_had_not_stopped(
    domains: Path, source_checkpoint: Path, tmp_path: Path, monkeypatch, method: str
) -> None:
    def words(name: str) -> list[str]:
        more = ("--epochs", "4", "--lr", "0.1", "--method", *method.split())
        return adapt(domains, source_checkpoint, tmp_path / name, *more)

    assert main(words("whole")) == 0
    train_epoch = Adaptation._train_epoch

    def killed_in_the_second(self: Adaptation, epoch: int) -> dict[str, float]:
        values = train_epoch(self, epoch)
        if epoch == 2:
            raise KeyboardInterrupt
        return values

    with monkeypatch.context() as patch:
        patch.setattr(Adaptation, "_train_epoch", killed_in_the_second)
        assert main(words("cut")) == 130
    assert main(words("cut")) == 0
    for file in ("best.pth", "latest.pth"):
        assert differences(checkpoint(tmp_path / "whole", file), checkpoint(tmp_path / "cut", file)) == []


# Randomness


def test_the_seed_reaches_every_generator() -> None:
    def draw() -> list[Any]:
        return [random.random(), np.random.rand(), float(torch.rand(()))]

    make_reproducible(5)
    first = draw()
    assert draw() != first
    make_reproducible(5)
    assert draw() == first
    make_reproducible(6)
    assert draw() != first


def test_deterministic_chooses_deterministic_algorithms(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    try:
        for method in methods.names():
            log = tmp_path / method
            more = ("--deterministic", "--epochs", "1", "--method", method)
            assert main(adapt(domains, source_checkpoint, log, *more)) == 0
        assert torch.are_deterministic_algorithms_enabled()
        assert json.loads((log / "config.json").read_text())["deterministic"] is True
    finally:
        make_reproducible(0)
    assert not torch.are_deterministic_algorithms_enabled()
