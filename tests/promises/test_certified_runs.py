"""``certify`` on a finished run: the answers decide which model is kept, and a changed run is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.domains_on_disk import small_arguments
from tests.support.json_files import read_json
from tests.support.killable import differences
from tllib_ancon.certificate import model_pair
from tllib_ancon.certificate.model_pair import ModelPair
from tllib_ancon.cli.main import main
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.models.checkpoints import load_state_dict


@pytest.fixture(scope="module")
def finished(domains, tmp_path_factory):
    """A run whose adaptation changes some predictions, beside its source model."""
    log = tmp_path_factory.mktemp("finished") / "run"
    words = small_arguments(domains)
    source = ["--epochs", "6", "--lr", "0.01", "--log", str(log / "pretrain")]
    assert main(["pretrain", *words, *source]) == 0
    words = [word for word in words if word != "--scratch"]
    start = ["--checkpoint", str(log / "pretrain" / "checkpoints" / "best.pth"), "--method", "ancon"]
    length = ["--epochs", "3", "--lr", "0.3", "-b", "16", "--log", str(log / "adapt")]
    assert main(["adapt", *words, "-t", "dark", *start, *length]) == 0
    pair(log).classes()
    return log


@pytest.fixture
def run(finished, tmp_path):
    copied = shutil.copytree(finished, tmp_path / "run")
    config = copied / "adapt" / "config.json"
    config.write_text(config.read_text().replace(str(finished), str(copied)))
    return copied


def pair(run):
    return ModelPair(CertifyConfig(run=str(run), workers=0))


def compared(run):
    return pair(run).session().comparison


def certificate(run):
    return read_json(run / "adapt" / "certificate.json")


def certify(run, *more):
    return ["certify", str(run), "-j", "0", *more]


def certified(run, *more):
    return main(certify(run, *more))


@pytest.mark.parametrize(("adapted", "verdict", "which"), [(True, "better", "adapted"), (False, "worse", "source")])
def test_answers_from_a_file_decide_which_model_is_kept(run, tmp_path, capsys, adapted, verdict, which):
    models = compared(run)
    file = tmp_path / "answers.csv"
    said = models.adapted if adapted else models.start
    lines = [f"{models.names[place]},{models.classes[said[place]]}\n" for place in models.disagreements]
    file.write_text("".join(lines))
    assert certified(run, "--answers", str(file)) == 0
    found = certificate(run)
    kept = run / "adapt" / "checkpoints" / "certified.pth"
    assert found["verdict"] == verdict
    assert found["returned"] == which
    assert found["checkpoint"] == str(kept)
    assert f"certified {verdict}" in capsys.readouterr().out
    weights = torch.load(kept, weights_only=True)
    stage = "adapt" if adapted else "pretrain"
    assert differences(weights, dict(load_state_dict(run / stage / "checkpoints" / "best.pth"))) == []


def test_predictions_are_computed_once(run, monkeypatch):
    first = compared(run)
    with monkeypatch.context() as patch:
        patch.setattr(model_pair, "predict_images", None)
        second = compared(run)
    assert np.array_equal(first.start, second.start)
    assert first.fingerprint == second.fingerprint


def test_an_overwritten_run_has_no_certificate(run, domains):
    certified(run)
    checkpoint = run / "pretrain" / "checkpoints" / "best.pth"
    arguments = ["--checkpoint", str(checkpoint), "--log", str(run / "adapt")]
    again = ["adapt", *small_arguments(domains), "-t", "dark", *arguments, "--epochs", "1", "--overwrite"]
    assert main(again) == 0
    assert not (run / "adapt" / "certificate.json").exists()
    assert not (run / "adapt" / "checkpoints" / "certified.pth").exists()


def test_a_source_model_that_is_gone_or_another(run, tmp_path, refused):
    start = run / "pretrain" / "checkpoints" / "best.pth"
    kept = Path(shutil.move(start, tmp_path / "kept.pth"))
    message = f"{start} is missing or is not the file that {run}/adapt started from; restore it, or say where "
    assert message + "it is by --checkpoint" in refused(certify(run))
    assert certified(run, "--checkpoint", str(kept)) == 0
    start.write_bytes(kept.read_bytes() + b"more")
    assert "is not the file that" in refused(certify(run))
