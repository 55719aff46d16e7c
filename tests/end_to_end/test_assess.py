"""``assess`` through its command and its function."""

import html
import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.domains_on_disk import small_arguments, write_domain
from tllib_ancon.cli.main import main
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import open_domain
from tllib_ancon.measures.disagreement import Interval
from tllib_ancon.measures.indicators import SourceStatistics
from tllib_ancon.runtime.errors import Interrupted
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.assess import Assessment
from tllib_ancon.training.progress import result_summary

FREE = {"aetta", "agreement", "class_frequencies"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assessed")
    write_domain(folder, "bright", 150, seed=0)
    write_domain(folder, "dark", 60, seed=1, brightness=0.4)
    return folder


@pytest.fixture(scope="module")
def trained(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("trained") / "run"
    assert main(["pretrain", *small_arguments(root), "--epochs", "4", "--lr", "0.02", "--log", str(log)]) == 0
    return log


@pytest.fixture
def words(root: Path, trained: Path) -> list[str]:
    return ["assess", str(trained), str(root), "-d", "ImageList", "-t", "dark", "-j", "0", "--quiet"]


def accuracy_on(trained: Path, root: Path) -> float:
    found = tllib_ancon.predict(trained, open_domain(root, "ImageList", ["dark"]), workers=0)
    return float((found.labels == np.arange(60) % 3).mean())


def test_what_pretrain_recorded_is_what_its_hold_out_tells(root: Path, trained: Path) -> None:
    recorded = SourceStatistics(**json.loads((trained / "source.json").read_text()))
    domain = open_domain(root, "ImageList", ["bright"])
    held = domain.subset(hold_out(len(domain), 0.1, 0)[1])
    dark = open_domain(root, "ImageList", ["dark"])
    with_images = tllib_ancon.assess(trained, dark, source=held, workers=0)
    for name, value in vars(with_images.source).items():
        assert value == pytest.approx(getattr(recorded, name), rel=1e-3, abs=1e-4)
    assert recorded.images == len(held)
    by_record = tllib_ancon.assess(trained, dark, workers=0)
    by_result = tllib_ancon.assess(trained, dark, source=with_images.source, workers=0)
    assert set(by_record.indicators) == {"drift_p", *FREE}
    assert by_record.indicators["drift_p"] == pytest.approx(by_result.indicators["drift_p"], rel=1e-3)
    latest = tllib_ancon.assess(trained / "checkpoints" / "latest.pth", dark, workers=0)
    assert set(latest.indicators) == FREE  # the record is the selected model's


def promises_nothing(text: str) -> bool:
    """Whether a text has neither an interval of the accuracy nor an advice, and says how many labels it takes."""
    wrong = [word for word in ("between", "advice", "estimated accuracy") if word in text.lower()]
    needed = re.search(r"o know the accuracy to ± 5 points, label about \d+ random images", text)
    return not wrong and needed is not None and "o reliable estimate of the accuracy without labels" in text


def test_the_command_prints_and_writes_indicators_without_an_interval(words: list[str], tmp_path: Path, capsys) -> None:
    found = tmp_path / "found.json"
    assert main([*words, "--json", str(found)]) == 0
    printed, written = capsys.readouterr().out, json.loads(found.read_text())
    assert promises_nothing(printed)
    from_labels = {"accuracy", "interval", "source_accuracy", "class_prior", "class_prior_interval"}
    assert set(written) == {*from_labels, "indicators", "labels_needed", "labels", "images"}
    assert written["accuracy"] is written["interval"] is None
    assert (written["images"], written["labels"]) == (60, 0)
    assert 0 < written["labels_needed"] < 60
    indicators = written["indicators"]
    assert indicators["drift_p"] < 0.05
    assert f"agreement {100 * indicators['agreement']:.1f} %" in printed
    assert f"aetta {100 * indicators['aetta']:.1f} %" in printed
    largest = f"the most frequent for {100 * max(indicators['class_frequencies']):.1f} % of images"
    assert f"{np.count_nonzero(indicators['class_frequencies'])} of 3 classes predicted, {largest}" in printed
    assert sum(indicators["class_frequencies"]) == pytest.approx(1)


@pytest.fixture(scope="module", params=["untrained", "collapsed"])
def wrong(request, trained: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of an adaptation whose source or last model predicts next to nothing right."""
    folder = tmp_path_factory.mktemp(request.param)
    source, how = trained, {"method": "self-training", "lr": 1000.0, "epochs": 2, "criterion": "last"}
    if request.param == "untrained":
        source, how = folder / "source", {"method": "ancon-auto", "lr": 1e-9, "epochs": 1}
        assert main(["pretrain", *small_arguments(root), "--epochs", "1", "--lr", "1e-9", "--log", str(source)]) == 0
    given = {"log": str(folder / "run"), "batch_size": 20, "workers": 0, "quiet": True, **how}
    tllib_ancon.adapt(source, root / "dark", **given)
    return folder / "run"


def test_an_untrained_network_and_a_collapsed_one_get_no_interval_and_no_advice(
    wrong: Path, root: Path, tmp_path: Path, capsys
) -> None:
    assert accuracy_on(wrong, root) < 0.5
    found = tmp_path / "found.json"
    assert main(["assess", str(wrong), str(root / "dark"), "-j", "0", "--quiet", "--json", str(found)]) == 0
    assert promises_nothing(capsys.readouterr().out)
    written = json.loads(found.read_text())
    assert written["accuracy"] is written["interval"] is None
    assert main(["report", str(wrong), "--out", str(tmp_path / "report")]) == 0
    result = json.loads((wrong / "result.json").read_text())
    assert set(result["assessment"]) == {"indicators", "labels_needed"}
    report = html.unescape((tmp_path / "report" / "report.html").read_text())
    for text in (result_summary(result), (wrong / "README.md").read_text(), report):
        assert promises_nothing(text)


@pytest.mark.parametrize(("aetta", "contradicts"), [(0.71, True), (0.69, False), (None, False)])
def test_indicators_that_contradict_each_other_are_reported(aetta: float | None, contradicts: bool) -> None:
    rates = {"agreement": 0.5, "aetta": aetta} if aetta is not None else {"agreement": 0.5}
    found = Assessment(None, None, {**rates, "class_frequencies": [0.5, 0.5]}, 30, 0, 60, None, None, None)
    assert ("\ncontradiction: agreement and aetta differ by 21.0 points\n" in f"{found}") == contradicts


def test_answers_in_the_order_of_the_questions_give_an_interval(
    words: list[str], root: Path, trained: Path, tmp_path: Path, capsys
) -> None:
    questions, answers, found = (tmp_path / name for name in ("questions.csv", "answers.csv", "found.json"))
    assert main([*words, "--questions", str(questions)]) == 0
    header, *asked = questions.read_text().splitlines()
    assert (header, len(asked)) == ("path,class", 60)
    rows = [f"{line}{line.split('/')[1]}" for line in asked]
    for count in (20, 60):
        answers.write_text("\n".join([header, *rows[:count], rows[-1]] if count < 60 else rows))
        assert main([*words, "--answers", str(answers), "--json", str(found)]) == 0
        written = json.loads(found.read_text())
        assert written["labels"] == count  # one that is not next in the order does not count
        lower, upper = written["interval"]
        assert lower <= accuracy_on(trained, root) <= upper
        assert f"from {count} labels" in capsys.readouterr().out
    assert lower == upper == written["accuracy"]
    answers.write_text("\n".join([f"{asked[0]}cannot tell", *rows[1:]]))
    assert main([*words, "--answers", str(answers), "--json", str(found)]) == 0
    assert json.loads(found.read_text())["accuracy"] <= lower


@pytest.mark.parametrize("method", ["ancon-auto", "tent"])
def test_adapt_tells_what_assess_tells_of_its_source_model(
    trained: Path, root: Path, tmp_path: Path, capsys, monkeypatch, method: str
) -> None:
    """Without a pass of its own, without an influence on the run, and again of a run that is cut off or finished."""
    log, same = tmp_path / "run", {"method": method, "epochs": 3, "batch_size": 20, "workers": 0, "quiet": True}
    same["hold_out"] = 0.5
    dark, labels = root / "dark", np.arange(60) % 3
    before = tllib_ancon.assess(trained, dark, workers=0)
    with monkeypatch.context() as patch:
        patch.setattr(Adaptation, "_keep", lambda run, _: run.metrics[-1]["epoch"] == 2 and signal.raise_signal(2))
        with pytest.raises(Interrupted):
            tllib_ancon.adapt(trained, dark, labels=labels, log=str(log), **same)
    result = tllib_ancon.adapt(trained, dark, labels=labels, log=str(log), **same)
    found = json.loads((log / "result.json").read_text())["assessment"]
    whole = tllib_ancon.adapt(trained, dark, labels=labels, **same)
    assert found == result.summary["assessment"] == whole.summary["assessment"]
    indicators, auto = found["indicators"], method == "ancon-auto"
    assert set(indicators) == {"aetta", "class_frequencies", "drift_p", *(["agreement"] if auto else [])}
    assert found["labels_needed"] == before.labels_needed
    if auto:  # on all images, as assess
        assert indicators["drift_p"] == pytest.approx(before.indicators["drift_p"], rel=1e-3)
        assert indicators["class_frequencies"] == before.indicators["class_frequencies"]
    source = (trained / "source.json").rename(tmp_path / "source.json")
    try:
        unknown = tllib_ancon.adapt(trained, dark, labels=labels, **same)
    finally:
        source.rename(trained / "source.json")
    assert set(unknown.summary["assessment"]["indicators"]) == set(indicators) - {"drift_p"}
    assert all(value.equal(unknown.model.state_dict()[name]) for name, value in whole.model.state_dict().items())
    assert main(["report", str(log), "--out", str(tmp_path / "report")]) == 0
    lines = [line for line in result_summary(result.summary).splitlines() if not line.startswith("infomax")]
    lines = lines[: lines.index(next(line for line in lines if line.startswith("source model")))]
    assert lines[0] == "before adapting: no reliable estimate of the accuracy without labels"
    assert f"drift: p = {indicators['drift_p']:.2g} that" in "".join(lines)
    assert set(found) == {"indicators", "labels_needed"}
    assert "\n".join(lines) in f"{result}"
    assert "; ".join(lines) in capsys.readouterr().out
    report, card = html.unescape((tmp_path / "report" / "report.html").read_text()), (log / "README.md").read_text()
    assert "; ".join(lines) in report
    assert all(f"\n{line.capitalize()}.\n" in card for line in lines)
    assert all(map(promises_nothing, (result_summary(result.summary), report, card)))


def test_a_model_in_python_is_left_as_it_is() -> None:
    torch.manual_seed(0)
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(80, 3, 2, 2)
    labels = model(images).argmax(1).numpy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = tllib_ancon.assess(model, images[:40], source=images[40:], answers=labels[:40])
    assert found.accuracy == 1
    assert found.interval == Interval(1, 1)
    assert "accuracy 100.0 %, between 100.0 and 100.0 %, from 40 labels of 40 images" in f"{found}"
    assert found.indicators["drift_p"] > 0.01
    assert "agreement" not in found.indicators  # it has no batch-norm
    assert "<pre>accuracy" in found._repr_html_()
    assert model.training
    assert not model[-1]._forward_pre_hooks
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    headless = nn.Sequential(nn.Conv2d(3, 3, 2), nn.Flatten())
    found = tllib_ancon.assess(headless, images[:20], source=images[20:40])
    assert set(found.indicators) == {"class_frequencies"}
    assert promises_nothing(f"{found}")


def test_bad_answers_and_sources_are_refused(
    words: list[str], root: Path, trained: Path, tmp_path: Path, refused
) -> None:
    answers = tmp_path / "answers.csv"
    for text, message in (
        ("bright/red/000.png,red", "none of the 60 images"),
        ("dark/red/000.png,violet", "violet"),
        ("dark/red/000.png,red", "label 10 or more"),
    ):
        answers.write_text(text)
        assert message in refused([*words, "--answers", str(answers)])
    assert "does not exist" in refused([*words, "--json", str(tmp_path / "no" / "found.json")])
    dark = open_domain(root, "ImageList", ["dark"])
    with pytest.raises(tllib_ancon.UserError, match="`source` has 6 images"):
        tllib_ancon.assess(trained, dark, source=dark.subset(range(6)), workers=0)
    for wrong, message in (
        (np.zeros(5, int), "for each of 60 images a class from 0 to 2"),
        (np.zeros(60), "pass whole numbers"),
    ):
        with pytest.raises(tllib_ancon.UserError, match=message):
            tllib_ancon.assess(trained, dark, answers=wrong, workers=0)


def test_images_that_may_have_taught_are_not_assessed(root: Path, trained: Path, tmp_path: Path) -> None:
    dark, labels = open_domain(root, "ImageList", ["dark"]), np.arange(60) % 3
    teaches = {"teach": 0.5, "answers": labels, "epochs": 1, "batch_size": 8, "workers": 0, "quiet": True}
    tllib_ancon.adapt(trained, dark.without_labels(), log=tmp_path / "taught", **teaches)
    found = tllib_ancon.assess(tmp_path / "taught", dark, answers=labels, workers=0)
    assert found.images == found.labels < 45
