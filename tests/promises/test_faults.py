"""A run whose data, model or numbers are at the edge or broken ends well, or in one line before anything is lost."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.support.json_files import read_json
from tests.support.killable import differences, weights
from tllib_ancon.cli.main import main
from tllib_ancon.methods import Method


def rewrite(path, change):
    lines = change(path.read_text().splitlines())
    path.write_text("\n".join(lines) + "\n")


def leave_out(path, words):
    """The lines of a file with these words."""
    rewrite(path, lambda lines: [line for line in lines if words not in line])


def assert_equal(tmp_path, first, second):
    for name in ("best.pth", "latest.pth"):
        assert differences(weights(tmp_path / first, name), weights(tmp_path / second, name)) == []


# Images, lists and classes


@pytest.mark.parametrize("workers", ["0", "2"])
def test_corrupt_images_are_skipped_counted_and_listed(copied, adapt, tmp_path, capsys, workers):
    broken = ("red/003.png", "green/010.png", "blue/020.png")
    (copied / "dark" / broken[0]).write_bytes(b"no picture")
    (copied / "dark" / broken[1]).write_bytes(b"")
    (copied / "dark" / broken[2]).unlink()
    words = adapt("skipped", "--skip-corrupt", "-j", workers, root=copied)
    words.remove("--quiet")
    assert main(words) == 0
    assert "3 of the 48 images of domain dark are left out" in capsys.readouterr().err
    images = read_json(tmp_path / "skipped" / "config.json")["inputs"]["images"]["dark"]
    assert images["number"] == 45
    assert len(images["skipped"]) == 3
    for name in broken:
        assert any(name in reason for reason in images["skipped"])
        leave_out(copied / "image_list" / "dark.txt", name)
    assert main(adapt("listed", root=copied)) == 0
    assert_equal(tmp_path, "skipped", "listed")


def test_class_orders_that_differ_are_matched_by_name_and_without_names_refused(copied, adapt, refused):
    lists = copied / "image_list"
    swapped = str.maketrans("01", "10")
    lines = (lists / "dark.txt").read_text().splitlines()
    exchanged = [line[:-1] + line[-1].translate(swapped) for line in lines]
    (lists / "dark.txt").write_text("\n".join(exchanged))
    (lists / "classes.txt").write_text("green\nred\nblue\n")
    assert main(adapt("named", root=copied)) == 0
    recorded = read_json(copied.parent / "named" / "config.json")
    assert recorded["inputs"]["classes"] == ["red", "green", "blue"]
    (lists / "classes.txt").unlink()
    assert "'green' has label 0 in dark and 1 in the run" in refused(adapt("run", root=copied))


def test_a_run_whose_list_or_start_model_changed_is_refused(copied, source_checkpoint, tmp_path, adapt, refused):
    start = Path(shutil.copy(source_checkpoint, tmp_path / "start.pth"))
    words = adapt("run", root=copied, checkpoint=start)
    assert main(words) == 0
    state = torch.load(start, weights_only=True)
    torch.save({**state, "bottleneck.0.bias": state["bottleneck.0.bias"] + 1}, start)
    assert "inputs.checkpoint_sha256" in refused(words)
    torch.save(state, start)
    rewrite(copied / "image_list" / "dark.txt", lambda lines: lines[:-1])
    assert "inputs.images" in refused(words)


# Numbers


@pytest.mark.parametrize(
    ("method", "anchored"), [("self-training", "ancon"), *((name, f"{name}+ancon") for name in ("gce", "nrc", "shot"))]
)
def test_no_smoothing_equals_the_base_method_bit_for_bit(source_checkpoint, tmp_path, adapt, method, anchored):
    assert main(adapt(method, "--method", method)) == 0
    assert main(adapt(anchored, "--method", anchored, "--smoothing", "0")) == 0
    assert_equal(tmp_path, method, anchored)
    before = torch.load(source_checkpoint, weights_only=True)
    after = weights(tmp_path / method)
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert {name.split(".")[0] for name in changed} == {"backbone", "bottleneck"}  # the head stays


@pytest.mark.parametrize("method", ["ancon", "nrc+ancon"])
def test_a_loss_that_is_not_finite_stops_with_its_step_and_the_state_before_it_is_good(
    adapt, refused, tmp_path, monkeypatch, method
):
    more = ("--method", method, "-b", "8", "-p", "1")
    assert main(adapt("whole", *more)) == 0
    forward = Method.forward
    losses = []

    def faulty(self, *args):
        losses.append(forward(self, *args))
        return losses[-1] * (torch.nan if len(losses) == 8 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(Method, "forward", faulty)
        shown = refused(adapt("cut", *more))
    assert "not finite by epoch 2, step 3" in shown
    assert "of epoch 1" in shown
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "cut").values())
    assert main(adapt("cut", *more)) == 0
    assert_equal(tmp_path, "whole", "cut")
