from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.domains_on_disk import small_arguments
from tllib_ancon import methods
from tllib_ancon.cli.main import main
from tllib_ancon.data.sampling import hold_out
from tllib_ancon.training import saved_logits, saved_predictions
from tllib_ancon.training.saved_predictions import FILE, read_predictions

EPOCHS = 3
VOTING = {name for name in methods.names() if "ancon" in name}


def adapt(domains: Path, checkpoint: Path, log: Path, *more: str) -> Path:
    start = ["-t", "dark", "--checkpoint", str(checkpoint), "--epochs", str(EPOCHS), "--log", str(log)]
    assert main(["adapt", *small_arguments(domains), *start, "--save-predictions", *more]) == 0
    return log


@pytest.mark.parametrize("method", methods.names())
def test_the_file_holds_the_selected_model_on_the_whole_target(
    domains: Path, source_checkpoint: Path, tmp_path: Path, method: str
) -> None:
    run = adapt(domains, source_checkpoint, tmp_path / "run", "--method", method)
    saved = read_predictions(run)
    assert saved.indices.tolist() == list(range(48))
    assert saved.labels.tolist() == [number % 3 for number in range(48)]
    assert (saved.logits.shape, saved.features.shape, saved.features.dtype) == ((48, 3), (48, 8), np.float16)
    accuracy = 100 * (saved.logits.argmax(1) == saved.labels).mean()
    assert accuracy == pytest.approx(json.loads((run / "result.json").read_text())["selected"]["accuracy"])
    assert (saved.votes is not None) == (method in VOTING)


def test_logits_are_the_selected_checkpoints(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    run = adapt(domains, source_checkpoint, tmp_path / "run")
    best = torch.load(run / "checkpoints" / "best.pth", weights_only=True)
    norm, direction = (best[f"head.parametrizations.weight.original{number}"] for number in (0, 1))
    weight = norm * direction / direction.norm(dim=1, keepdim=True)
    saved = read_predictions(run)
    features = torch.from_numpy(saved.features.astype(np.float32))
    torch.testing.assert_close(features @ weight.T, torch.from_numpy(saved.logits), rtol=5e-3, atol=5e-3)


def one_vote_an_epoch(domains: Path, checkpoint: Path, log: Path, *more: str) -> Path:
    """Every adapted image votes in each epoch; the rate is too large, so that the first epoch is the best."""
    return adapt(domains, checkpoint, log, "--weighting", "uniform", "-b", "43", "--lr", "3", *more)


def test_votes_are_those_of_the_selected_epoch(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    run = one_vote_an_epoch(domains, source_checkpoint, tmp_path / "run")
    selected = json.loads((run / "result.json").read_text())["selected_epoch"]
    assert selected < EPOCHS
    saved = read_predictions(run)
    adapted, held_out = hold_out(48, 0.1, seed=0)
    assert saved.votes.dtype == np.uint16
    assert (saved.votes[held_out].sum(1) == 0).all()
    assert (saved.votes[adapted].sum(1) == selected).all()


def test_a_run_that_stops_before_it_keeps_its_predictions_keeps_them_when_it_continues(
    domains: Path, source_checkpoint: Path, tmp_path: Path, monkeypatch
) -> None:
    whole = one_vote_an_epoch(domains, source_checkpoint, tmp_path / "whole")

    def stop(*_) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(saved_predictions, "write_predictions", stop)
        with pytest.raises(RuntimeError):
            one_vote_an_epoch(domains, source_checkpoint, tmp_path / "run")
    run = one_vote_an_epoch(domains, source_checkpoint, tmp_path / "run")
    kept, expected = read_predictions(run), read_predictions(whole)
    for name, array in vars(expected).items():
        np.testing.assert_array_equal(getattr(kept, name), array)


def test_positions_and_paths_are_those_of_the_list_also_where_images_were_left_out(
    domains: Path, source_checkpoint: Path, tmp_path: Path
) -> None:
    copied = shutil.copytree(domains, tmp_path / "domains")
    (copied / "dark" / "red" / "003.png").write_bytes(b"no picture")
    saved = read_predictions(adapt(copied, source_checkpoint, tmp_path / "run", "--skip-corrupt"))
    assert saved.indices.tolist() == [number for number in range(48) if number != 3]
    listed = [line.split()[0] for line in (copied / "image_list" / "dark.txt").read_text().splitlines()]
    for position, path in zip(saved.indices, saved.paths, strict=True):
        assert path == str(copied / listed[position])


def test_soft_votes_stay_fractions(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    saved = read_predictions(adapt(domains, source_checkpoint, tmp_path / "run", "--prediction", "soft"))
    assert saved.votes.dtype == np.float32


def test_a_target_without_labels_has_none_in_the_file(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(domains, tmp_path / "domains")
    target = copied / "image_list" / "dark.txt"
    target.write_text("".join(line.split()[0] + "\n" for line in target.read_text().splitlines()))
    saved = read_predictions(adapt(copied, source_checkpoint, tmp_path / "run"))
    assert saved.labels is None


def test_overwriting_without_the_flag_leaves_no_old_file(
    domains: Path, source_checkpoint: Path, tmp_path: Path, capsys
) -> None:
    run = adapt(domains, source_checkpoint, tmp_path / "run")
    (run / FILE).write_bytes(b"changed")
    arguments = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--epochs", str(EPOCHS), "--log", str(run)]
    again = ["adapt", *small_arguments(domains), *arguments]
    assert main([*again, "--save-predictions"]) == 2
    assert "is not the file that the run wrote" in capsys.readouterr().err
    assert main([*again, "--overwrite"]) == 0
    assert not (run / FILE).exists()


def test_the_last_epoch_is_taken_by_name(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    """At this rate InfoMax would take the first."""
    run = one_vote_an_epoch(domains, source_checkpoint, tmp_path / "run", "--criterion", "last")
    assert json.loads((run / "result.json").read_text())["selected_epoch"] == EPOCHS
    best, latest = ((run / "checkpoints" / name).read_bytes() for name in ("best.pth", "latest.pth"))
    assert best == latest
    saved = read_predictions(run)
    adapted, held_out = hold_out(48, 0.1, seed=0)
    assert (saved.votes[adapted].sum(1) == EPOCHS).all()
    assert not saved.votes[held_out].any()


def test_without_a_criterion_all_images_are_adapted_on(
    domains: Path, source_checkpoint: Path, tmp_path: Path, capsys
) -> None:
    more = ("--criterion", "none", "--weighting", "uniform", "-b", "48")
    run = adapt(domains, source_checkpoint, tmp_path / "run", *more)
    assert json.loads((run / "result.json").read_text())["selected_epoch"] == EPOCHS
    assert (read_predictions(run).votes.sum(1) == EPOCHS).all()
    assert f"selected (none) (epoch {EPOCHS}): accuracy" in capsys.readouterr().out


def test_the_logits_of_every_epoch_are_kept_also_when_the_run_stops_before(
    domains: Path, source_checkpoint: Path, tmp_path: Path, monkeypatch
) -> None:
    def stop(*_) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(saved_logits, "write_logits", stop)
        with pytest.raises(RuntimeError):
            adapt(domains, source_checkpoint, tmp_path / "run", "--save-logits")
    run = adapt(domains, source_checkpoint, tmp_path / "run", "--save-logits")
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = saved_logits.read_logits(run)
    assert list(found) == [f"epoch-{epoch:03d}" for epoch in range(EPOCHS + 1)]
    for saved, line in zip(found.values(), metrics, strict=True):
        assert 100 * (saved.logits.argmax(1) == saved.labels).mean() == pytest.approx(line["accuracy"])
    adapt(domains, source_checkpoint, run, "--overwrite")
    assert saved_logits.read_logits(run) == {}
