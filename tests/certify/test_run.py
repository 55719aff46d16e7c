import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon import adapt
from tllib_ancon.certifying.run import ModelPair
from tllib_ancon.certifying.session import Comparison
from tllib_ancon.cli.main import main
from tllib_ancon.config import CertifyConfig
from tllib_ancon.data.answers import opaque


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_domains(tmp_path_factory.mktemp("domains"))


@pytest.fixture(scope="module")
def finished(domains: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose adaptation changes some predictions, beside its source model."""
    log, words = tmp_path_factory.mktemp("finished") / "run", small_arguments(domains)
    source = ["--epochs", "6", "--lr", "0.01", "--log", str(log / "pretrain")]
    assert main(["pretrain", *words, *source]) == 0
    words = [word for word in words if word != "--scratch"]
    start = ["--checkpoint", str(log / "pretrain" / "checkpoints" / "best.pth"), "--method", "ancon"]
    length = ["--epochs", "3", "--lr", "0.3", "-b", "16", "--log", str(log / "adapt")]
    assert main(["adapt", *words, "-t", "dark", *start, *length]) == 0
    pair(log).classes()
    return log


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    copied = shutil.copytree(finished, tmp_path / "run")
    config = copied / "adapt" / "config.json"
    config.write_text(config.read_text().replace(str(finished), str(copied)))
    return copied


def pair(run: Path) -> ModelPair:
    return ModelPair(CertifyConfig(run=str(run), workers=0))


def compared(run: Path) -> Comparison:
    return pair(run).session().comparison


def certificate(run: Path) -> dict[str, Any]:
    return json.loads((run / "adapt" / "certificate.json").read_text())


def certified(run: Path, *more: str) -> int:
    return main(["certify", str(run), "-j", "0", *more])


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What is said, in one line, to a call that is refused."""

    def refused(run: Path, *more: str) -> str:
        capsys.readouterr()
        assert certified(run, *more) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        return error

    return refused


@pytest.mark.parametrize(("adapted", "verdict", "which"), [(True, "better", "adapted"), (False, "worse", "start")])
def test_answers_from_a_file_decide_which_model_is_kept(
    run: Path, domains: Path, tmp_path: Path, capsys, adapted: bool, verdict: str, which: str
) -> None:
    models, file = compared(run), tmp_path / "answers.csv"
    said = models.adapted if adapted else models.start
    file.write_text("".join(f"{models.names[place]},{models.classes[said[place]]}\n" for place in models.disagreements))
    assert certified(run, "--answers", str(file)) == 0
    found, kept = certificate(run), run / "adapt" / "checkpoints" / "certified.pth"
    assert (found["verdict"], found["returned"], found["checkpoint"]) == (verdict, which, str(kept))
    assert f"certified {verdict}" in capsys.readouterr().out
    weights, expected = torch.load(kept, weights_only=True), pair(run).predictor(which).network.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    scores = tmp_path / "scores.json"
    evaluated = ["-d", "ImageList", "-t", "dark", "--checkpoint", str(kept), "--json", str(scores), "-j", "0"]
    assert main(["evaluate", str(domains), *evaluated]) == 0
    result = json.loads((run / "adapt" / "result.json").read_text())["selected" if adapted else "start"]
    assert json.loads(scores.read_text())["accuracy"] == pytest.approx(result["accuracy"])


def test_questions_come_as_copies_whose_names_tell_nothing(run: Path, tmp_path: Path) -> None:
    models, file = compared(run), tmp_path / "questions.csv"
    assert certified(run, "--questions", str(file)) == 0
    paths = [line.split(",")[0] for line in file.read_text().splitlines()[1:]]
    assert len(paths) == len(models.disagreements) == len([*(tmp_path / "questions-images").iterdir()])
    assert not any(told in file.read_text() for told in [*models.classes, "dark"])
    assert Image.open(tmp_path / paths[0]).size == (16, 16)
    places = {opaque(models.names[place]): place for place in models.disagreements}
    said = [models.classes[models.adapted[places[path.rpartition("-")[2]]]] for path in paths]
    file.write_text("".join(f"{path},{name}\n" for path, name in zip(paths, said, strict=True)))
    assert certified(run, "--answers", str(file)) == 0
    assert certificate(run)["verdict"] == "better"


def test_predictions_are_computed_once(run: Path, monkeypatch: pytest.MonkeyPatch, refused) -> None:
    first = compared(run)
    with monkeypatch.context() as patch:
        patch.setattr(ModelPair, "predictor", None)
        second = compared(run)
    assert np.array_equal(first.start, second.start)
    assert first.fingerprint == second.fingerprint
    shutil.copy(pair(run).checkpoints["start"], run / "adapt" / "checkpoints" / "best.pth")
    assert "nothing to certify: the source and the adapted model are equal on all 48 images" in refused(run)


def test_an_overwritten_run_has_no_certificate(run: Path, domains: Path) -> None:
    certified(run)
    arguments = ["--checkpoint", str(run / "pretrain" / "checkpoints" / "best.pth"), "--log", str(run / "adapt")]
    again = ["adapt", *small_arguments(domains), "-t", "dark", *arguments, "--epochs", "1", "--overwrite"]
    assert main(again) == 0
    assert not (run / "adapt" / "certificate.json").exists()
    assert not (run / "adapt" / "checkpoints" / "certified.pth").exists()


def test_a_source_model_that_is_gone_or_another(run: Path, tmp_path: Path, refused) -> None:
    start = run / "pretrain" / "checkpoints" / "best.pth"
    assert pair(run).checkpoints["start"] == str(start)
    kept = Path(shutil.move(start, tmp_path / "kept.pth"))
    message = f"the source model of {run}/adapt is gone: there is no {start}; say where "
    assert message + "it is by --checkpoint" in refused(run)
    assert certified(run, "--checkpoint", str(kept)) == 0
    start.write_bytes(kept.read_bytes() + b"more")
    assert "its checksum differs" in refused(run)


def test_what_is_no_finished_adaptation_on_disk(run: Path, tmp_path: Path, refused) -> None:
    assert "holds no adaptation" in refused(tmp_path)
    assert "holds no adaptation" in refused(run / "pretrain")
    config = run / "adapt" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "checkpoint": None}))
    assert "checkpoints/source.pth; say where it is by --checkpoint" in refused(run)
    (run / "adapt" / "result.json").unlink()
    assert "is not finished" in refused(run)


def test_a_run_on_a_folder_of_images(run: Path, domains: Path, tmp_path: Path, refused) -> None:
    """From Python, and by the command with images that have no labels."""
    start = str(run / "pretrain" / "checkpoints" / "best.pth")
    settings = {"epochs": 3, "lr": 0.3, "batch_size": 16, "workers": 0, "quiet": True}
    adapt(start, domains / "dark", log=str(tmp_path / "folder"), **settings)
    assert certified(tmp_path / "folder") == 0
    models = compared(tmp_path / "folder")
    assert models.classes == ["red", "green", "blue"]
    assert sorted(models.names)[0] == "blue/002.png"

    images = tmp_path / "images" / "all"
    images.mkdir(parents=True)
    for number, path in enumerate(sorted((domains / "dark").rglob("*.png"))):
        shutil.copy(path, images / f"{number}.png")
    words = ["-d", "Folder", "-t", "all", "--checkpoint", start, "--epochs", "3", "--lr", "0.3", "-b", "16", "-j", "0"]
    assert main(["adapt", str(tmp_path / "images"), *words, "--quiet", "--log", str(tmp_path / "unlabelled")]) == 0
    assert certified(tmp_path / "unlabelled") == 0
    assert compared(tmp_path / "unlabelled").names[0] == "all/0.png"
