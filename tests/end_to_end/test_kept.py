"""The predictions that a run stores are those of the selected model on the whole target, in the target's order."""

import numpy as np
import pytest

from tests.domains_on_disk import small_arguments
from tests.end_to_end.conftest import KEPT
from tests.end_to_end.killable import differences
from tests.json_files import read_json
from tllib_ancon.cli.main import main
from tllib_ancon.data.loading import hold_out
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.runs import predictions
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runs.predictions import read_predictions


@pytest.mark.parametrize("method", ["self-training", "gce+ancon", "shot"])
def test_the_file_holds_the_selected_model_on_the_whole_target(adapt, tmp_path, method):
    run = tmp_path / "run"
    assert main(adapt("run", "--save-predictions", "--method", method)) == 0
    saved = read_predictions(run)
    assert saved.indices.tolist() == list(range(48))
    assert saved.labels.tolist() == [number % 3 for number in range(48)]
    assert saved.features.dtype == np.float16
    accuracy = 100 * (saved.logits.argmax(1) == saved.labels).mean()
    assert accuracy == pytest.approx(RunDirectory(run).result()["selected"]["accuracy"])
    assert (saved.votes is not None) == ("ancon" in method)
    best = load_state_dict(run / "checkpoints" / "best.pth")
    norm = best["head.parametrizations.weight.original0"].numpy()
    direction = best["head.parametrizations.weight.original1"].numpy()
    weight = norm * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    features = saved.features.astype(np.float32)
    np.testing.assert_allclose(features @ weight.T, saved.logits, rtol=5e-3, atol=5e-3)


def test_the_selected_model_and_its_votes_are_those_reported(kept, domains, tmp_path):
    result = RunDirectory(kept).result()
    words = [word for word in small_arguments(domains) if word not in ("-s", "bright", "--quiet")]
    evaluated = ["-t", "dark", "--checkpoint", str(kept), "--json", str(tmp_path / "scores.json")]
    assert main(["evaluate", *words, *evaluated]) == 0
    scores = read_json(tmp_path / "scores.json")
    assert scores["accuracy"] == result["selected"]["accuracy"]
    assert scores["ece"] == pytest.approx(result["selected"]["ece"], abs=1e-6)
    assert result["selected_epoch"] < 3
    votes = read_predictions(kept).votes
    adapted, held_out = hold_out(48, 0.1, seed=0)
    assert votes.dtype == np.uint16
    assert (votes[held_out].sum(1) == 0).all()
    assert (votes[adapted].sum(1) == result["selected_epoch"]).all()


def test_a_run_that_stops_before_it_keeps_its_predictions_keeps_them_when_it_continues(
    kept, adapt, tmp_path, monkeypatch
):
    def stop(*_):
        raise KeyError("stop")

    with monkeypatch.context() as patch:
        patch.setattr(predictions, "write_arrays", stop)
        with pytest.raises(KeyError, match="stop"):
            main(adapt("run", *KEPT))
    assert main(adapt("run", *KEPT)) == 0
    assert differences(vars(read_predictions(kept)), vars(read_predictions(tmp_path / "run"))) == []


def test_positions_are_those_of_the_list_where_images_were_left_out_and_soft_votes_stay_fractions(
    copied, adapt, tmp_path
):
    """Of a target without labels."""
    (copied / "dark" / "red" / "003.png").write_bytes(b"no picture")
    target = copied / "image_list" / "dark.txt"
    listed = [line.split()[0] for line in target.read_text().splitlines()]
    target.write_text("\n".join(listed) + "\n")
    assert main(adapt("run", "--save-predictions", "--skip-corrupt", "--prediction", "soft", root=copied)) == 0
    saved = read_predictions(tmp_path / "run")
    assert saved.labels is None
    assert saved.votes.dtype == np.float32
    assert saved.indices.tolist() == [number for number in range(48) if number != 3]
    assert list(saved.paths) == [str(copied / listed[position]) for position in saved.indices]
