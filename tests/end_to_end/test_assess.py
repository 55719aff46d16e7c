"""``assess``: indicators without labels promise no accuracy, labels give an interval, and ``adapt`` says the same."""

import html
import re

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.domains_on_disk import small_arguments, write_domain
from tests.json_files import read_json
from tllib_ancon.cli.main import main
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import open_domain
from tllib_ancon.measures.disagreement import Interval
from tllib_ancon.measures.indicators import SourceStatistics
from tllib_ancon.training.progress import result_summary

FREE = {"aetta", "agreement", "class_frequencies"}
LABELS = np.arange(60) % 3


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("assessed")
    write_domain(folder, "bright", 150, seed=0)
    write_domain(folder, "dark", 60, seed=1, brightness=0.4)
    return folder


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    log = tmp_path_factory.mktemp("trained") / "run"
    assert main(["pretrain", *small_arguments(root), "--epochs", "4", "--lr", "0.02", "--log", str(log)]) == 0
    return log


@pytest.fixture
def dark(root):
    return open_domain(root, "ImageList", ["dark"])


@pytest.fixture
def words(root, trained):
    return ["assess", str(trained), str(root), "-d", "ImageList", "-t", "dark", "-j", "0", "--quiet"]


def accuracy_on(model, dark):
    return float((tllib_ancon.predict(model, dark, workers=0).labels == LABELS).mean())


def test_what_pretrain_recorded_is_what_its_hold_out_tells(root, trained, dark):
    recorded = SourceStatistics(**read_json(trained / "source.json"))
    bright = open_domain(root, "ImageList", ["bright"])
    held_out = bright.subset(hold_out(len(bright), 0.1, 0)[1])
    from_images = tllib_ancon.assess(trained, dark, source=held_out, workers=0)
    assert recorded.images == len(held_out)
    for name, value in vars(from_images.source).items():
        assert value == pytest.approx(getattr(recorded, name), rel=1e-3, abs=1e-4)
    from_record = tllib_ancon.assess(trained, dark, workers=0)
    from_result = tllib_ancon.assess(trained, dark, source=from_images.source, workers=0)
    assert set(from_record.indicators) == {"drift_p", *FREE}
    assert from_record.indicators["drift_p"] == pytest.approx(from_result.indicators["drift_p"], rel=1e-3)
    latest = tllib_ancon.assess(trained / "checkpoints" / "latest.pth", dark, workers=0)
    assert set(latest.indicators) == FREE  # the record is the selected model's


def promises_nothing(text):
    """Whether a text has neither an interval of the accuracy nor an advice, and says how many labels it takes."""
    if re.search("between|advice|estimated accuracy", text.lower()):
        return False
    needed = re.search(r"o know the accuracy to ± 5 points, label about \d+ random images", text)
    return needed is not None and "o reliable estimate of the accuracy without labels" in text


def test_answers_in_the_order_of_the_questions_give_an_interval(words, dark, trained, tmp_path, capsys):
    questions = tmp_path / "questions.csv"
    answers = tmp_path / "answers.csv"
    found = tmp_path / "found.json"
    words += ["--json", str(found)]
    assert main([*words, "--questions", str(questions)]) == 0
    header, *asked = questions.read_text().splitlines()
    assert header == "path,class"
    rows = [f"{line}{line.split('/')[1]}" for line in asked]
    skipped = rows[40]  # an answer that is not next in the order does not count
    for count, answered in ((20, [*rows[:20], skipped]), (60, rows)):
        answers.write_text("\n".join([header, *answered]))
        assert main([*words, "--answers", str(answers)]) == 0
        written = read_json(found)
        lower, upper = written["interval"]
        assert written["labels"] == count
        assert lower <= accuracy_on(trained, dark) <= upper
        assert f"from {count} labels" in capsys.readouterr().out
    assert lower == upper == written["accuracy"]
    rows[0] = f"{asked[0]}cannot tell"
    answers.write_text("\n".join(rows))
    assert main([*words, "--answers", str(answers)]) == 0
    assert read_json(found)["accuracy"] <= lower


def test_labels_in_a_file_of_questions_stay(words, tmp_path, capsys):
    file = tmp_path / "ask.csv"
    again = [*words, "--questions", str(file)]
    assert main(again) == main(again) == 0
    labelled = "".join(f"{line}red\n" for line in file.read_text().splitlines()[1:])
    file.write_text(labelled)
    for command in (again, [*again, "--answers", str(file)]):
        assert main(command) == 2
        assert "may hold labels" in capsys.readouterr().err
        assert file.read_text() == labelled
    assert main([*words, "--answers", str(file)]) == 0


@pytest.mark.parametrize("method", ["ancon-auto", "tent"])
def test_adapt_tells_what_assess_tells_of_its_source_model(trained, root, dark, tmp_path, method):
    """Without an influence on the run; the report and the model card have the same lines."""
    settings = {"method": method, "epochs": 1, "batch_size": 20, "workers": 0, "quiet": True, "hold_out": 0.5}
    before = tllib_ancon.assess(trained, dark, workers=0)
    result = tllib_ancon.adapt(trained, root / "dark", labels=LABELS, log=tmp_path / "run", **settings)
    found = result.summary["assessment"]
    assert found["labels_needed"] == before.labels_needed
    expected = {"drift_p", *FREE}
    if method == "tent":
        expected -= {"agreement"}
    assert set(found["indicators"]) == expected
    if method == "ancon-auto":  # on all images, as assess
        assert found["indicators"]["drift_p"] == pytest.approx(before.indicators["drift_p"], rel=1e-3)
        assert found["indicators"]["class_frequencies"] == before.indicators["class_frequencies"]
    lines = result_summary(result.summary).partition("\nsource model")[0].splitlines()
    lines = [line for line in lines if not line.startswith("infomax")]
    assert lines[0] == "before adapting: no reliable estimate of the accuracy without labels"
    assert "\n".join(lines) in f"{result}"
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report")]) == 0
    report = html.unescape((tmp_path / "report" / "report.html").read_text())
    card = (tmp_path / "run" / "README.md").read_text()
    assert "; ".join(lines) in report
    assert promises_nothing(report)
    assert promises_nothing(card)
    assert [line for line in lines if f"\n{line.capitalize()}.\n" not in card] == []
    source = (trained / "source.json").rename(tmp_path / "source.json")
    try:
        unknown = tllib_ancon.adapt(trained, root / "dark", labels=LABELS, **settings)
    finally:
        source.rename(trained / "source.json")
    assert set(unknown.summary["assessment"]["indicators"]) == set(found["indicators"]) - {"drift_p"}
    for name, value in result.model.state_dict().items():
        assert value.equal(unknown.model.state_dict()[name])


def test_a_model_in_python_is_left_as_it_is():
    hidden = nn.Linear(12, 8), nn.ReLU()
    model = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(8, 3))
    images = torch.randn(80, 3, 2, 2)
    labels = model(images).argmax(1).numpy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = tllib_ancon.assess(model, images[:40], source=images[40:], answers=labels[:40])
    assert found.accuracy == 1
    assert found.interval == Interval(1, 1)
    assert found.indicators["drift_p"] > 0.01
    assert "agreement" not in found.indicators  # it has no batch-norm
    assert "<pre>accuracy 100.0 %, between 100.0 and 100.0 %, from 40 labels of 40 images" in found._repr_html_()
    assert model.training
    assert not model[-1]._forward_pre_hooks
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    headless = nn.Sequential(nn.Conv2d(3, 3, 2), nn.Flatten())
    found = tllib_ancon.assess(headless, images[:20], source=images[20:40])
    assert set(found.indicators) == {"class_frequencies"}
    assert promises_nothing(f"{found}")


@pytest.mark.parametrize(
    ("text", "message"),
    [("bright/red/000.png,red", "none of the 60 images"), ("dark/red/000.png,red", "label 10 or more")],
)
def test_bad_files_of_answers_are_refused(words, tmp_path, refused, text, message):
    (tmp_path / "answers.csv").write_text(text)
    assert message in refused([*words, "--answers", str(tmp_path / "answers.csv")])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (np.zeros(5, int), "for each of 60 images a class from 0 to 2"),
        (np.zeros(60), "pass whole numbers"),
    ],
)
def test_bad_answers_and_too_few_source_images_are_refused(trained, dark, answers, message):
    with pytest.raises(tllib_ancon.UserError, match=message):
        tllib_ancon.assess(trained, dark, answers=answers, workers=0)
    with pytest.raises(tllib_ancon.UserError, match="`source` has 6 images"):
        tllib_ancon.assess(trained, dark, source=dark.subset(range(6)), workers=0)


def test_images_that_may_have_taught_are_not_assessed(trained, dark, tmp_path):
    teaches = {"answers": LABELS, "epochs": 1, "batch_size": 8, "workers": 0, "quiet": True}
    tllib_ancon.adapt(trained, dark.without_labels(), log=tmp_path / "taught", **teaches)
    found = tllib_ancon.assess(tmp_path / "taught", dark, answers=LABELS, workers=0)
    assert found.images == found.labels < 45


def test_the_accuracy_on_the_source_is_that_of_a_run_and_of_the_run_that_it_started_from(
    root, trained, tmp_path, capsys
):
    run = str(tmp_path / "run")
    images = [str(root), "-d", "ImageList", "-t", "dark", "-j", "0", "--quiet"]
    assert main(["adapt", *images, "--checkpoint", str(trained), "--epochs", "1", "--log", run]) == 0
    capsys.readouterr()
    assert main(["evaluate", *images, "--checkpoint", run, "--also", "bright"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    bright = open_domain(root, "ImageList", ["bright"])
    before = tllib_ancon.evaluate(trained, bright, workers=0).accuracy
    after = tllib_ancon.evaluate(run, bright, workers=0).accuracy
    assert line == f"accuracy on the source: {before:.2f} % before adaptation, {after:.2f} % after"
