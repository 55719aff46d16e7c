"""``assess`` through its command and its function."""

import html
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.domains_on_disk import CLASSES, small_arguments, write_domain
from tllib_ancon.assessing import SourceStatistics, advise, in_words, likely
from tllib_ancon.certification import Interval
from tllib_ancon.cli.main import main
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import open_domain
from tllib_ancon.errors import Interrupted
from tllib_ancon.training.adapting import Adaptation

FREE = {"aetta", "agreement"}


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
    by_record, by_result = (
        tllib_ancon.assess(trained, dark, source=source, workers=0) for source in (None, with_images.source)
    )
    assert set(by_record.estimates) == {"atc", "doc", *FREE}
    assert by_record.estimates == pytest.approx(by_result.estimates)
    latest = tllib_ancon.assess(trained / "checkpoints" / "latest.pth", dark, workers=0)
    assert set(latest.estimates) == FREE  # the record is the selected model's
    assert latest.drift_p is None


def test_the_command_tells_writes_and_draws_it(words: list[str], tmp_path: Path, capsys) -> None:
    found, drawn = tmp_path / "found.json", tmp_path / "found.png"
    assert main([*words, "--json", str(found), "--figure", str(drawn)]) == 0
    told, written = capsys.readouterr().out, json.loads(found.read_text())
    assert "no estimate without labels can be trusted under every shift" in told
    assert f"advice     {written['advice']}" in told
    assert written["images"] == 60
    assert written["labels"] == 0
    assert 0 < written["labels_needed"] < 60
    assert written["drift_p"] < 0.05
    for name, value in written["estimates"].items():
        lower, upper = written["intervals"][name]
        assert 0 <= lower <= value <= upper <= 1
        assert f"{name} " in told
    assert (written["accuracy"], written["interval"]) in [
        (value, written["intervals"][name]) for name, value in written["estimates"].items()
    ]
    assert drawn.read_bytes().startswith(b"\x89PNG")


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


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(images))


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
    found, held_out = json.loads((log / "result.json").read_text())["assessment"], result.summary["held_out"]
    whole = tllib_ancon.adapt(trained, dark, labels=labels, **same)
    assert found == result.summary["assessment"] == whole.summary["assessment"]
    auto = method == "ancon-auto"
    assert set(found["estimates"]) == {"atc", "doc", "aetta", *(["agreement"] if auto else [])}
    assert (held_out, found["by"]) == ((0, "agreement") if auto else (30, "aetta"))
    assert found["accuracy"] == found["estimates"][found["by"]]
    assert found["interval"] == found["intervals"][found["by"]] == [*likely(found["by"], found["accuracy"])]
    if auto:  # on all images, as assess
        assert {name: found["estimates"][name] for name in ("atc", "doc")} == pytest.approx(
            {name: before.estimates[name] for name in ("atc", "doc")}
        )
        assert found["drift_p"] == pytest.approx(before.drift_p, rel=1e-3)
        assert found["advice"] == advise(found["estimates"]["agreement"], None) == before.advice
    source = (trained / "source.json").rename(tmp_path / "source.json")
    try:
        unknown = tllib_ancon.adapt(trained, dark, labels=labels, **same)
    finally:
        source.rename(trained / "source.json")
    assert set(unknown.summary["assessment"]["estimates"]) == set(found["estimates"]) - {"atc", "doc"}
    assert all(value.equal(unknown.model.state_dict()[name]) for name, value in whole.model.state_dict().items())
    assert main(["report", str(log), "--out", str(tmp_path / "report")]) == 0
    few = tllib_ancon.adapt(trained, dark, **{**same, "hold_out": 0.1, "criterion": "infomax", "epochs": 1})
    assert "assessment" not in few.summary  # of six images
    first, second, *_ = in_words(result.summary)
    assert first.startswith(f"before adapting: estimated accuracy {100 * found['accuracy']:.1f} %, between ")
    assert ("; advice: " in first, "of the 30 images held out" in first) == (auto, not auto)
    assert f"p = {found['drift_p']:.2g}" in second
    assert f"{first}\n{second}\n" in f"{result}"
    assert f"{first}; {second}" in capsys.readouterr().out
    assert f"{first}; {second}" in html.unescape((tmp_path / "report" / "report.html").read_text())
    assert f"{first.capitalize()}.\n\n{second.capitalize()}.\n" in (log / "README.md").read_text()


def test_a_model_in_python_is_left_as_it_is() -> None:
    torch.manual_seed(0)
    model, images = Network().train(), torch.randn(80, 3, 2, 2)
    labels = model(images).argmax(1).numpy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = tllib_ancon.assess(model, images[:40], source=images[40:], source_labels=labels[40:], answers=labels[:40])
    assert found.accuracy == 1
    assert found.interval == Interval(1, 1)
    assert found.estimates["atc"] > 0.9
    assert "agreement" not in found.estimates  # it has no batch-norm
    assert "<pre>accuracy" in found._repr_html_()
    assert model.training
    assert not model.head._forward_pre_hooks
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_bad_answers_and_sources_are_refused(
    words: list[str], root: Path, trained: Path, tmp_path: Path, refused
) -> None:
    answers = tmp_path / "answers.csv"
    for text, message in (
        ("bright/red/000.png,red", "none of the 60 images"),
        ("dark/red/000.png,violet", "violet"),
        ("dark/red/000.png,red", "10 are needed"),
    ):
        answers.write_text(text)
        assert message in refused([*words, "--answers", str(answers)])
    assert "does not exist" in refused([*words, "--json", str(tmp_path / "no" / "found.json")])
    dark = open_domain(root, "ImageList", ["dark"])
    for labels, message in (
        ([0] * 60, "several classes"),
        ([7] * 60, "class"),
        ([0, 1, 2] * 2, "whole number for each"),
        (None, "with their labels"),
    ):
        with pytest.raises(tllib_ancon.UserError, match=message):
            tllib_ancon.assess(trained, dark, source=dark.without_labels(), source_labels=labels, workers=0)
    with pytest.raises(tllib_ancon.UserError, match="`source` is 6 images"):
        tllib_ancon.assess(trained, dark, source=dark.subset(range(6)), workers=0)
    for wrong in (np.zeros(5, int), np.zeros(60)):
        with pytest.raises(tllib_ancon.UserError, match="for each of 60 images a class from 0 to 2"):
            tllib_ancon.assess(trained, dark, answers=wrong, workers=0)


def test_a_source_of_other_classes_is_refused(trained: Path, root: Path, tmp_path: Path) -> None:
    write_domain(tmp_path, "other", 30, seed=0)
    for name, other in zip(CLASSES, ("cup", "pen", "mug"), strict=True):
        (tmp_path / "other" / name).rename(tmp_path / "other" / other)
    with pytest.raises(tllib_ancon.UserError, match="class"):
        tllib_ancon.assess(trained, root / "dark", source=tmp_path / "other", workers=0)


def test_nothing_tells_the_accuracy_of_a_network_without_a_head_or_batch_norm() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(12, 3))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1) @ self.weight

    with pytest.raises(tllib_ancon.UserError, match="neither a head that is known nor batch-norm"):
        tllib_ancon.assess(Bare(), torch.randn(20, 3, 2, 2))
    result = tllib_ancon.adapt(
        Bare(), torch.randn(20, 3, 2, 2), method="self-training", epochs=1, workers=0, quiet=True
    )
    assert "assessment" not in result.summary
    assert "before adapting" not in f"{result}"


def test_images_that_may_have_taught_are_not_assessed(root: Path, trained: Path, tmp_path: Path) -> None:
    dark, labels = open_domain(root, "ImageList", ["dark"]), np.arange(60) % 3
    teaches = {"teach": 0.5, "answers": labels, "epochs": 1, "batch_size": 8, "workers": 0, "quiet": True}
    tllib_ancon.adapt(trained, dark.without_labels(), log=tmp_path / "taught", **teaches)
    found = tllib_ancon.assess(tmp_path / "taught", dark, answers=labels, workers=0)
    assert found.images == found.labels < 45
