"""The predictions that a run stores are those of the selected model on the whole target, in the target's order."""

import numpy as np
import pytest

from tllib_ancon.cli.main import main
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runs.files import read_arrays


@pytest.mark.parametrize("method", ["self-training", "gce+ancon", "shot"])
def test_the_file_holds_the_selected_model_on_the_whole_target(adapt, tmp_path, method):
    run = tmp_path / "run"
    assert main(adapt("run", "--method", method)) == 0
    saved = read_arrays(run / "predictions.npz")
    assert saved["indices"].tolist() == list(range(48))
    assert saved["labels"].tolist() == [number % 3 for number in range(48)]
    accuracy = 100 * (saved["logits"].argmax(1) == saved["labels"]).mean()
    assert accuracy == pytest.approx(RunDirectory(run).result()["selected"]["accuracy"])
    assert len(saved["paths"]) == 48
    assert ("votes" in saved) == ("ancon" in method)
    best = load_state_dict(run / "checkpoints" / "best.pth")
    norm = best["head.parametrizations.weight.original0"].numpy()
    direction = best["head.parametrizations.weight.original1"].numpy()
    weight = norm * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    np.testing.assert_allclose(saved["features"] @ weight.T, saved["logits"], rtol=5e-3, atol=5e-3)
