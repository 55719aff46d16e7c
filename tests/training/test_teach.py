"""Labels of the target that teach, and those that certify: no image does both."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import tllib_ancon
from tests.domains_on_disk import CLASSES, small_arguments
from tests.end_to_end.killable import differences
from tests.json_files import read_json
from tests.networks import PIXELS, PREPROCESSING, Net, state_of
from tests.refusals import one_line
from tests.training import small
from tllib_ancon.cli.main import main
from tllib_ancon.training.teaching import certifying_positions

IMAGES = 48
LABELS = np.random.default_rng(0).integers(0, 3, IMAGES)
CERTIFYING = np.array(certifying_positions({"taught": {"seed": 0}}, IMAGES))
TEACHING = np.setdiff1d(np.arange(IMAGES), CERTIFYING)


def adapt(**settings):
    return small.adapt(images=IMAGES, labels=False, **{"epochs": 6, "lr": 0.1, **settings})


def taught(answers=LABELS, **settings):
    return adapt(answers=answers, **settings)


@pytest.mark.parametrize("method", ["self-training", "ancon", "ancon-auto", "gce+elr", "shot", "nrc", "aad", "tent"])
def test_every_method_learns_the_labels_that_teach(method):
    images = torch.randn(IMAGES, 3, 4, 4, generator=torch.Generator().manual_seed(0))

    def accuracy(result):
        predicted = tllib_ancon.predict(result.model, images, workers=0).labels
        return np.mean(predicted[TEACHING] == LABELS[TEACHING])

    settings = {"method": method, "adapted": "all", "criterion": "last"}
    result = taught(**settings)
    without = adapt(**settings)
    assert accuracy(result) > accuracy(without) + 0.1
    assert result.summary["taught"] == len(TEACHING)
    assert f"{len(TEACHING)} labelled images trained the model" in str(result)
    assert "taught" not in without.summary


def test_labels_that_certify_do_not_reach_training():
    expected = state_of(taught().model)
    turned = LABELS.copy()
    turned[CERTIFYING] = (turned[CERTIFYING] + 1) % 3
    fewer = LABELS.copy()
    fewer[CERTIFYING] = -1
    for answers in (turned, fewer):
        assert differences(expected, state_of(taught(answers).model)) == []
    fewer[TEACHING[0]] = -1
    assert differences(expected, state_of(taught(fewer).model))


@pytest.mark.parametrize("with_directory", [False, True])
def test_only_images_that_did_not_teach_certify(with_directory, tmp_path):
    log = tmp_path if with_directory else None
    session = taught(log=log).certify(LABELS, workers=0)
    comparison = session.comparison
    assert comparison.names == [str(position) for position in CERTIFYING]
    labels = LABELS[CERTIFYING]
    outcomes = (comparison.adapted == labels).astype(int) - (comparison.start == labels)
    assert session.answers
    asked = [session.asked(number).position for number in range(len(session.answers))]
    assert list(session.test.outcomes) == outcomes[asked].tolist()


def test_labels_of_other_images_do_not_certify():
    result = taught()
    for labels in (LABELS[:30], [*LABELS, *LABELS]):
        with one_line(r"`labels` are int64 of shape \(\d+,\); expected for each of 48 images a class"):
            result.certify(labels, workers=0)


@pytest.mark.parametrize("classes", [["red"] * 3, ["red", "green"], ["red", "green", "blue", "black"]])
def test_a_certificate_has_a_name_for_each_class(classes):
    images = torch.randn(IMAGES, 3, 4, 4)
    with one_line(r"`classes` has \d different names and the models have 3 classes"):
        tllib_ancon.certify(small.network(), small.network(), images, classes=classes, workers=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"answers": [-1] * IMAGES}, "the class of 0 images"),
        ({"answers": [1] + [-1] * (IMAGES - 1)}, "the class of 1 images"),
        ({"answers": LABELS[:-1]}, "of shape"),
        ({"answers": LABELS + 3}, "from 0 to 2"),
        ({"method": "adabn", "epochs": 1, "lr": None}, "`answers` have no effect with `method=adabn`"),
    ],
)
def test_bad_input(settings, message):
    with one_line(message):
        adapt(**{"answers": LABELS, **settings})


def test_answers_need_a_model_with_logits():
    with one_line("where logits .* takes any output, .* without `log` or `answers`"):
        small.adapt(nn.BatchNorm2d(3), images=IMAGES, labels=False, method="adabn", epochs=1, answers=LABELS)


def test_answers_name_images_by_the_paths_that_people_type(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos = write_photos(Path("photos"))
    expected = None
    for number, folder in enumerate(["", "photos/", f"{tmp_path}/photos/"]):
        file = Path(f"answers{number}.csv")
        lines = [f"{folder}{photo.name},{place % 2}\n" for place, photo in enumerate(photos)]
        file.write_text("".join(lines))
        settings = {"answers": file, "epochs": 1, "workers": 0, "quiet": True, **PREPROCESSING}
        state = state_of(tllib_ancon.adapt(Net(), "photos", **settings).model)
        expected = expected or state
        assert differences(expected, state) == []
    Path("answers.csv").write_text("elsewhere/0.png,1\n")
    with one_line(r"line 1: 'elsewhere/0\.png' is none of .* give its path below photos, or remove"):
        tllib_ancon.assess(Net(), "photos", answers="answers.csv", workers=0, **PREPROCESSING)


def write_photos(folder):
    folder.mkdir()
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return sorted(folder.iterdir())


# On the command line


@pytest.fixture
def run(domains, source_checkpoint, tmp_path):
    """Adapt into a run directory of this name."""
    common = [word for word in small_arguments(domains) if word not in ("-s", "bright")]

    def run(log, *words, start=source_checkpoint):
        places = ["-t", "dark", "--checkpoint", str(start), "--log", str(tmp_path / log)]
        return main(["adapt", *common, *places, "--epochs", "4", "--lr", "0.3", *words])

    return run


def recorded(run):
    return read_json(run / "config.json")


def test_one_stream_of_labels_teaches_and_certifies(run, domains, tmp_path, capsys):
    names = [line.split()[0] for line in (domains / "image_list" / "dark.txt").read_text().splitlines()]
    order = np.random.default_rng(0).permutation(IMAGES)[:40]  # the order of certify's seed
    lines = ["path,class", f"{names[order[0]]},cannot tell", f"{names[order[1]]},another"]
    lines += [f"{names[position]},{CLASSES[position % 3]}" for position in order[2:]]
    file = tmp_path / "answers.csv"
    file.write_text("\n".join(lines))
    words = ["--answers", str(file)]
    first = tmp_path / "taught"
    assert run("taught", *words) == 0
    positions_of_first = {*certifying_positions(recorded(first), IMAGES)}
    assert recorded(first)["taught"]["labels"] == len({*order[2:]} - positions_of_first)
    assert "by labels of" in (first / "README.md").read_text()

    later = next(iter(positions_of_first - {*order}))  # it certifies: the run stays the same
    file.write_text(file.read_text() + f"\n{names[later]},red\n")
    assert run("taught", *words) == 0
    capsys.readouterr()
    assert main(["certify", str(first), "-j", "0", "--answers", str(file)]) == 0
    shown = capsys.readouterr().out
    certificate = read_json(first / "certificate.json")
    assert certificate["images"] == len(positions_of_first)
    assert f"the {len(positions_of_first)} images that may not teach certify: of 41 answers " in shown
    assert certificate["labels"] > 1 or certificate["settled"]

    assert run("again", *words, "--seed", "1", start=first) == 2
    assert "labels taught this source model with --seed 0" in capsys.readouterr().err
    assert run("after", start=first) == 0
    assert recorded(tmp_path / "after")["taught"] == recorded(first)["taught"]
