"""The predictions that a run stores are those of the selected model on the whole target, in the target's order."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.domains_on_disk import small_arguments
from tests.end_to_end.conftest import KEPT
from tests.end_to_end.killable import weights
from tllib_ancon.cli.main import main
from tllib_ancon.data.loading import hold_out
from tllib_ancon.training import checkpointing
from tllib_ancon.training.checkpointing import read_predictions
from tllib_ancon.training.run import RunDirectory


@pytest.mark.parametrize("method", ["self-training", "gce+ancon", "shot"])
def test_the_file_holds_the_selected_model_on_the_whole_target(adapt, tmp_path: Path, method: str) -> None:
    run = tmp_path / "run"
    assert main(adapt("run", "--save-predictions", "--method", method)) == 0
    saved = read_predictions(run)
    assert saved.indices.tolist() == list(range(48))
    assert saved.labels.tolist() == [number % 3 for number in range(48)]
    assert (saved.logits.shape, saved.features.shape, saved.features.dtype) == ((48, 3), (48, 8), np.float16)
    accuracy = 100 * (saved.logits.argmax(1) == saved.labels).mean()
    assert accuracy == pytest.approx(RunDirectory(run).result()["selected"]["accuracy"])
    assert (saved.votes is not None) == ("ancon" in method)
    best = weights(run, "best.pth")
    norm, direction = (best[f"head.parametrizations.weight.original{number}"].numpy() for number in (0, 1))
    weight = norm * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    np.testing.assert_allclose(saved.features.astype(np.float32) @ weight.T, saved.logits, rtol=5e-3, atol=5e-3)


def test_the_selected_model_and_its_votes_are_those_reported(kept: Path, domains: Path, tmp_path: Path) -> None:
    result = RunDirectory(kept).result()
    words = [word for word in small_arguments(domains) if word not in ("-s", "bright", "--quiet")]
    best, scored = str(kept / "checkpoints" / "best.pth"), tmp_path / "scores.json"
    assert main(["evaluate", *words, "-t", "dark", "--checkpoint", best, "--json", str(scored)]) == 0
    scores = json.loads(scored.read_text())
    assert scores["accuracy"] == result["selected"]["accuracy"]
    assert scores["ece"] == pytest.approx(result["selected"]["ece"], abs=1e-6)
    saved, (adapted, held_out) = read_predictions(kept), hold_out(48, 0.1, seed=0)
    assert result["selected_epoch"] < 3
    assert saved.votes.dtype == np.uint16
    assert (saved.votes[held_out].sum(1) == 0).all()
    assert (saved.votes[adapted].sum(1) == result["selected_epoch"]).all()


def test_a_run_that_stops_before_it_keeps_its_predictions_keeps_them_when_it_continues(
    kept: Path, adapt, tmp_path: Path, monkeypatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "write_arrays", lambda *_: {}["stop"])
        with pytest.raises(KeyError, match="stop"):
            main(adapt("run", *KEPT))
    assert main(adapt("run", *KEPT)) == 0
    expected, found = read_predictions(kept), read_predictions(tmp_path / "run")
    for name, array in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), array)


def test_positions_are_those_of_the_list_where_images_were_left_out_and_soft_votes_stay_fractions(
    copied: Path, adapt, tmp_path: Path
) -> None:
    """Of a target without labels."""
    (copied / "dark" / "red" / "003.png").write_bytes(b"no picture")
    target = copied / "image_list" / "dark.txt"
    target.write_text("".join(line.split()[0] + "\n" for line in target.read_text().splitlines()))
    assert main(adapt("run", "--save-predictions", "--skip-corrupt", "--prediction", "soft", root=copied)) == 0
    saved = read_predictions(tmp_path / "run")
    assert (saved.labels, saved.votes.dtype) == (None, np.float32)
    assert saved.indices.tolist() == [number for number in range(48) if number != 3]
    listed = target.read_text().splitlines()
    assert list(saved.paths) == [str(copied / listed[position]) for position in saved.indices]
