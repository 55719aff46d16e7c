from __future__ import annotations

import csv
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.certify.serving import Visitor
from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon import adapt
from tllib_ancon.certify import run as certify
from tllib_ancon.certify.adapted_run import AdaptedRun, find_adapted_run
from tllib_ancon.cli.main import main
from tllib_ancon.config import CertifyConfig
from tllib_ancon.errors import UserError


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_domains(tmp_path_factory.mktemp("domains"))


@pytest.fixture(scope="module")
def finished(domains: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two stages whose adaptation changes some predictions."""
    log = tmp_path_factory.mktemp("finished") / "run"
    stages = ["--epochs", "6", "--lr", "0.01", "--adapt-epochs", "3", "--adapt-lr", "0.3", "--adapt-batch-size", "16"]
    assert main(["run", *small_arguments(domains), "-t", "dark", *stages, "--log", str(log)]) == 0
    return log


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    copied = shutil.copytree(finished, tmp_path / "run")
    config = copied / "adapt" / "config.json"
    config.write_text(config.read_text().replace(str(finished), str(copied)))
    return copied


def certificate(run: Path) -> dict[str, object]:
    return json.loads((run / "adapt" / "certificate.json").read_text())


def adapted_run(run: Path) -> AdaptedRun:
    return find_adapted_run(CertifyConfig(run=str(run), workers=0))


def certified(run: Path, *more: str) -> int:
    return main(["certify", str(run), "-j", "0", *more])


def refused(capsys: pytest.CaptureFixture[str], run: Path, *more: str) -> str:
    capsys.readouterr()
    assert certified(run, *more) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error


def answers(run: Path, path: Path, favour: Callable[[int], bool], header: bool = True) -> Path:
    """A file in which each question is answered by the adapted model's class or the start model's."""
    comparison = adapted_run(run).compare()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["path", "class"]] if header else [])
        for number, position in enumerate(comparison.disagreements):
            said = comparison.adapted if favour(number) else comparison.start
            writer.writerow([comparison.names[position], comparison.classes[said[position]]])
    return path


def test_both_models_are_those_of_the_run(run: Path) -> None:
    """Their accuracies are what the run itself measured, before the first epoch and of the selected one."""
    adapted = adapted_run(run)
    comparison = adapted.compare()
    labels = adapted.images.labels
    metrics = [json.loads(line) for line in (run / "adapt" / "metrics.jsonl").read_text().splitlines()]
    selected = json.loads((run / "adapt" / "result.json").read_text())["selected"]
    assert 100 * (comparison.start == labels).mean() == pytest.approx(metrics[0]["accuracy"])
    assert 100 * (comparison.adapted == labels).mean() == pytest.approx(selected["accuracy"])
    assert 5 <= len(comparison.disagreements) < 48
    assert comparison.names[0].endswith(".png")
    assert not comparison.names[0].startswith("/")


def test_without_a_label_it_says_what_it_would_take_and_keeps_the_start(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certified(run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("not certified: the adapted model's accuracy minus the start's is ")
    assert lines[1].startswith("if the adapted model is right on 60 % of the disagreements, a gain of ")
    assert lines[-1] == f"{run}/adapt/checkpoints/certified.pth: the start model"
    assert (certificate(run)["verdict"], certificate(run)["labels"]) == ("undecided", 0)


@pytest.mark.parametrize(
    ("favour", "verdict", "kept"), [(True, "better", "adapt/checkpoints/best.pth"), (False, "worse", "pretrain")]
)
def test_answers_from_a_file_decide_which_model_is_kept(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], favour: bool, verdict: str, kept: str
) -> None:
    file = answers(run, tmp_path / "answers.csv", lambda number: favour)
    assert certified(run, "--answers", str(file)) == 0
    found = certificate(run)
    assert (found["verdict"], found["returned"]) == (verdict, "adapted" if favour else "start")
    assert found["labels"] <= found["disagreements"]
    assert f"certified {verdict}" in capsys.readouterr().out
    weights = torch.load(run / "adapt" / "checkpoints" / "certified.pth", weights_only=True)
    expected = adapted_run(run)._classifier(str(run / kept) if favour else adapted_run(run).start).state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)


def test_the_kept_model_can_be_evaluated(run: Path, domains: Path, tmp_path: Path) -> None:
    certified(run, "--answers", str(answers(run, tmp_path / "answers.csv", lambda number: False)))
    scores = tmp_path / "scores.json"
    model = ["--checkpoint", str(run / "adapt" / "checkpoints" / "certified.pth"), "--json", str(scores)]
    assert main(["evaluate", str(domains), "-d", "ImageList", "-t", "dark", *model, "-j", "0"]) == 0
    start = json.loads((run / "adapt" / "metrics.jsonl").read_text().splitlines()[0])
    assert json.loads(scores.read_text())["accuracy"] == pytest.approx(start["accuracy"])


def test_a_labelled_list_says_what_its_labels_would_have_decided(run: Path, domains: Path) -> None:
    assert certified(run, "--labels", str(domains / "image_list" / "dark.txt")) == 0
    found = certificate(run)
    comparison = adapted_run(run).compare()
    labels = adapted_run(run).images.labels
    truth = ((comparison.adapted == labels).mean() - (comparison.start == labels).mean()).item()
    lower, upper = found["interval"]  # type: ignore[misc]
    assert lower - 1e-9 <= truth <= upper + 1e-9
    assert (found["verdict"], truth > 0) == ("better", True)


def test_answers_are_kept_and_the_next_call_goes_on(run: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.csv"
    assert certified(run, "--questions", str(questions)) == 0
    header, *rows = questions.read_text().splitlines()
    assert header == "path,class"
    comparison = adapted_run(run).compare()
    by_name = {comparison.names[position]: int(position) for position in comparison.disagreements}
    assert {row.rstrip(",") for row in rows} == set(by_name)

    def filled(count: int) -> str:
        known = [f"{row}{comparison.adapted[by_name[row.rstrip(',')]]}" for row in rows[:count]]
        questions.write_text("\n".join([header, *known, *rows[count:], ""]))
        return str(questions)

    assert certified(run, "--answers", filled(2)) == 0
    assert certificate(run)["labels"] == 2
    assert certified(run) == 0
    assert certificate(run)["labels"] == 2
    assert certified(run, "--answers", filled(len(rows))) == 0
    assert certificate(run)["verdict"] == "better"


def test_predictions_are_computed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = adapted_run(run).compare()
    with monkeypatch.context() as patch:
        patch.setattr(AdaptedRun, "_classes", None)
        second = adapted_run(run).compare()
    assert np.array_equal(first.start, second.start)
    assert first.fingerprint == second.fingerprint
    shutil.copy(adapted_run(run).start, run / "adapt" / "checkpoints" / "best.pth")
    with pytest.raises(UserError, match="nothing to certify"):
        adapted_run(run).compare()


def test_the_page_asks_and_its_answers_end_in_the_certificate(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = adapted_run(run).compare()

    def labelled(session, read, port, say) -> None:  # type: ignore[no-untyped-def]
        assert port == 0
        while session.question is not None:
            assert read(session.question.position).size == (16, 16)
            session.answer(int(comparison.adapted[session.question.position]))

    monkeypatch.setattr(certify, "serve", labelled)
    assert certified(run, "--page", "--port", "0") == 0
    assert certificate(run)["verdict"] == "better"


def test_the_page_of_the_command_is_there(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def visit(line: str) -> None:
        if not line.startswith("http"):
            return
        page = Visitor(line)
        seen.append(page.state()["options"][2]["text"])
        assert page.get("image/0")[0].getheader("content-type") == "image/jpeg"
        page.post("finish", {})

    def say(line: str) -> None:
        threading.Thread(target=visit, args=[line]).start()

    found = certify.certify_run(CertifyConfig(run=str(run), page=True, port=0, workers=0), say)
    assert seen == ["Another class"]
    assert found["verdict"] == "undecided"


def test_an_overwritten_run_has_no_certificate(run: Path, domains: Path) -> None:
    certified(run)
    arguments = ["--checkpoint", str(run / "pretrain" / "checkpoints" / "best.pth"), "--log", str(run / "adapt")]
    again = ["adapt", *small_arguments(domains), "-t", "dark", *arguments, "--epochs", "1", "--overwrite"]
    assert main(again) == 0
    assert not (run / "adapt" / "certificate.json").exists()
    assert not (run / "adapt" / "checkpoints" / "certified.pth").exists()


def test_models_that_never_disagree(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(adapted_run(run).start, run / "adapt" / "checkpoints" / "best.pth")
    assert "nothing to certify: the start and the adapted model are equal on all 48 images" in refused(capsys, run)


def test_a_start_model_that_is_gone_or_another(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = Path(adapted_run(run).start)
    moved = shutil.move(start, tmp_path / "moved.pth")
    message = f"the start model of {run}/adapt is gone: there is no {start}; say where it is by --checkpoint"
    assert message in refused(capsys, run)
    assert certified(run, "--checkpoint", str(moved)) == 0
    start.write_bytes(Path(moved).read_bytes() + b"more")
    assert "its checksum differs" in refused(capsys, run)


def test_a_run_directory_that_has_moved_finds_its_start(run: Path, tmp_path: Path) -> None:
    moved = Path(shutil.move(run, tmp_path / "elsewhere"))
    assert adapted_run(moved).start == str(moved / "pretrain" / "checkpoints" / "best.pth")
    assert certified(moved) == 0


def test_what_is_no_finished_adaptation(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no adaptation" in refused(capsys, tmp_path)
    assert "holds no adaptation" in refused(capsys, run / "pretrain")
    (run / "adapt" / "result.json").unlink()
    assert "is not finished" in refused(capsys, run)


def test_a_run_of_a_model_in_python(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = run / "adapt" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "checkpoint": None}))
    assert "was made from a model in Python" in refused(capsys, run)


def test_a_run_on_a_folder_of_images(
    run: Path, domains: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From Python, and by the command with images that have no labels."""
    start = str(run / "pretrain" / "checkpoints" / "best.pth")
    settings = {"epochs": 3, "lr": 0.3, "batch_size": 16, "workers": 0, "quiet": True}
    adapt(start, domains / "dark", log=str(tmp_path / "folder"), **settings)
    assert "give their folder as --root" in refused(capsys, tmp_path / "folder")
    assert certified(tmp_path / "folder", "--root", str(domains / "dark")) == 0
    comparison = find_adapted_run(CertifyConfig(run=str(tmp_path / "folder"), root=str(domains / "dark"))).compare()
    assert list(comparison.classes) == ["red", "green", "blue"]
    assert sorted(comparison.names)[0] == "blue/002.png"

    pictures = tmp_path / "pictures" / "all"
    pictures.mkdir(parents=True)
    for number, path in enumerate(sorted((domains / "dark").rglob("*.png"))):
        shutil.copy(path, pictures / f"{number}.png")
    words = ["-d", "Folder", "-t", "all", "--checkpoint", start, "--epochs", "3", "--lr", "0.3", "-b", "16", "-j", "0"]
    assert main(["adapt", str(tmp_path / "pictures"), *words, "--quiet", "--log", str(tmp_path / "unlabelled")]) == 0
    assert certified(tmp_path / "unlabelled") == 0
    assert adapted_run(tmp_path / "unlabelled").compare().names[0] == "all/0.png"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{name},purple", "line 2: unknown class 'purple'"),
        ("{name},0\n{name},0", "line 3: a second answer"),
        ("nowhere.png,0", "line 2: 'nowhere.png' is none of the 48 images"),
        ("{agreed},0", "is not in question"),
    ],
)
def test_bad_answers(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    comparison = adapted_run(run).compare()
    agreed = next(iter(set(range(48)) - set(comparison.disagreements.tolist())))
    text = line.format(name=comparison.names[comparison.disagreements[0]], agreed=comparison.names[agreed])
    (tmp_path / "answers.csv").write_text(f"path,class\n{text}\n")
    assert message in refused(capsys, run, "--answers", str(tmp_path / "answers.csv"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--delta", "1"], "--delta must be above 0 and below 1"),
        (["--delta", "nan"], "--delta must be above 0 and below 1"),
        (["--margin", "-0.1"], "--margin must be at least 0 and below 1"),
        (["--margin", "1"], "--margin must be at least 0 and below 1"),
        (["--port", "99999"], "--port must be at least 0 and at most 65535"),
        (["--answers", "a", "--labels", "b"], "--answers and --labels exclude each other"),
        (["--answers", "missing.csv"], "missing.csv: cannot be read as answers"),
        (["--answerz", "a.csv"], "did you mean '--answers'?"),
    ],
)
def test_bad_flags(run: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    assert message in refused(capsys, run, *flags)


def test_a_changed_delta_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certified(run)
    assert "was begun with --delta 0.05, not 0.2" in refused(capsys, run, "--delta", "0.2")
