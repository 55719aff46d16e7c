"""Labels of the target that teach, and those that certify: no image does both."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tllib_ancon
from tests.domains_on_disk import CLASSES, small_arguments
from tests.end_to_end.killable import differences
from tests.training.small import adapt
from tllib_ancon.cli.main import main
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.teaching import certifying

IMAGES = 48
LABELS = np.random.default_rng(0).integers(0, 3, IMAGES)
KEPT = certifying({"taught": {"teach": 0.5, "seed": 0}}, IMAGES)
QUICK: dict[str, Any] = {"epochs": 6, "lr": 0.1, "log": None}


def taught(answers: Any = LABELS, **settings: Any) -> Any:
    return adapt(images=IMAGES, labels=False, answers=answers, teach=0.5, **{**QUICK, **settings})


@pytest.mark.parametrize("method", ["self-training", "ancon", "ancon-auto", "gce+elr", "shot", "nrc", "aad", "tent"])
def test_every_method_learns_the_labels_that_teach(method: str) -> None:
    teach = np.setdiff1d(np.arange(IMAGES), KEPT)
    result = taught(method=method, adapted="all", criterion="last")
    images = torch.randn(IMAGES, 3, 4, 4, generator=torch.Generator().manual_seed(0))

    def right(model: Any) -> float:
        return float((tllib_ancon.predict(model, images, workers=0).labels == LABELS)[teach].mean())

    without = adapt(images=IMAGES, labels=False, method=method, adapted="all", criterion="last", **QUICK)
    assert right(result.model) > right(without.model) + 0.1
    assert result.summary["taught"] == len(teach) == IMAGES - len(KEPT)
    assert f"{len(teach)} labelled images trained the model" in str(result)
    assert "taught" not in without.summary


def test_labels_that_certify_do_not_reach_training() -> None:
    turned, fewer = LABELS.copy(), LABELS.copy()
    turned[KEPT], fewer[KEPT] = (turned[KEPT] + 1) % 3, -1
    models = [taught(answers).model.state_dict() for answers in (LABELS, turned, fewer)]
    assert differences(models[0], models[1]) == differences(models[0], models[2]) == []
    fewer[np.setdiff1d(np.arange(IMAGES), KEPT)[0]] = -1
    assert differences(models[0], taught(fewer).model.state_dict())


@pytest.mark.parametrize("log", [False, True])
def test_only_images_that_did_not_teach_certify(log: bool, tmp_path: Path) -> None:
    session = taught(log=str(tmp_path) if log else None).certify(LABELS, workers=0)
    assert session.comparison.names == [str(position) for position in KEPT]
    said = (session.comparison.adapted, session.comparison.start)
    outcomes = [
        int(adapted == label) - int(start == label) for adapted, start, label in zip(*said, LABELS[KEPT], strict=True)
    ]
    assert list(session.test.outcomes) == [outcomes[session.asked(n).position] for n in range(len(session.answers))]
    assert session.answers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teach": 1.0}, "`teach` must be above 0 and below 1"),
        ({"teach": 0.0}, "`teach` must be above 0 and below 1"),
        ({"teach": None}, "go together"),
        ({"answers": None}, "go together"),
        ({"answers": np.full(IMAGES, -1)}, "the class of 0 images"),
        ({"answers": np.where(np.arange(IMAGES) == 3, 1, -1)}, "the class of 1 images"),
        ({"answers": LABELS[:-1]}, "of shape"),
        ({"answers": LABELS + 3}, "from 0 to 2"),
        ({"method": "adabn", "epochs": 1}, "`teach=0.5` has no effect"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        adapt(images=IMAGES, labels=False, **{"answers": LABELS, "teach": 0.5, **settings})


def test_one_stream_of_labels_teaches_and_certifies(domains: Path, source_checkpoint, tmp_path: Path, capsys) -> None:
    common, file = small_arguments(domains), tmp_path / "answers.csv"
    order = np.random.default_rng(0).permutation(IMAGES)[:40]  # the order of certify's seed
    names = [line.split()[0] for line in (domains / "image_list" / "dark.txt").read_text().splitlines()]
    lines = [f"{names[at]},{CLASSES[at % 3]}" for at in order[2:]]
    lines += [f"{names[order[0]]},cannot tell", f"{names[order[1]]},another"]
    file.write_text("path,class\n" + "\n".join(lines))

    def run(log: str, *more: str, start: Path = source_checkpoint) -> int:
        own = ["--checkpoint", str(start), "--log", str(tmp_path / log), "--epochs", "4", "--lr", "0.3"]
        words = [word for word in common if word not in ("-s", "bright")]
        return main(["adapt", *words, "-t", "dark", *own, *more])

    teach = ["--answers", str(file), "--teach", "0.5"]
    assert run("taught", *teach) == 0
    kept = set(certifying(recorded := json.loads((tmp_path / "taught" / "config.json").read_text()), IMAGES))
    assert recorded["taught"]["labels"] == len(set(order[2:]) - kept)
    assert "by labels of" in (tmp_path / "taught" / "README.md").read_text()
    later = next(iter(kept - {*order}))  # it certifies: the run stays the same
    file.write_text(file.read_text() + f"\n{names[later]},red\n")
    assert run("taught", *teach) == 0
    capsys.readouterr()
    assert main(["certify", str(tmp_path / "taught"), "-j", "0", "--answers", str(file)]) == 0
    said, certificate = capsys.readouterr().out, json.loads((tmp_path / "taught" / "certificate.json").read_text())
    assert certificate["images"] == len(kept)
    assert f"the {len(kept)} images that may not teach certify: of 41 answers " in said
    assert certificate["labels"] > 1 or certificate["settled"]

    assert run("again", *teach, "--seed", "1", start=tmp_path / "taught") == 2
    assert "labels taught this source model with --teach 0.5 and --seed 0" in capsys.readouterr().err
    assert run("after", start=tmp_path / "taught") == 0
    assert json.loads((tmp_path / "after" / "config.json").read_text())["taught"] == recorded["taught"]
    for text, message in (
        ("nowhere.png,red", "is none of the 48 images"),
        (f"{names[0]},pink", "unknown class 'pink'"),
    ):
        file.write_text(text)
        assert run("bad", *teach) == 2
        assert message in capsys.readouterr().err
