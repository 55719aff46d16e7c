"""A report holds the finished runs that belong in one table, and names those that are damaged."""

import re
import shutil

import pytest

from tests.support.fabricated import write_predictions, write_run, write_source
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main
from tllib_ancon.laboratory.finished_runs import read_runs
from tllib_ancon.laboratory.report import write_report


def test_finished_adaptations_are_found_wherever_they_lie(tmp_path):
    write_run(tmp_path / "a", "ancon", "A-D", seed=1)
    write_run(tmp_path / "b/c", "self-training", "gaussian_noise/3")
    (write_run(tmp_path / "b", "elr") / "result.json").unlink()
    shutil.copy(write_run(tmp_path / "b", "elr") / "result.json", tmp_path / "b/result.json")  # of both stages
    (write_run(tmp_path / "b", "gce") / "result.json").unlink()
    runs, left_out = read_runs([tmp_path / "a", tmp_path / "b", tmp_path / "b/c"])
    columns = ["method", "pair", "column", "severity", "start"]
    assert [*runs[columns].itertuples(index=False, name=None)] == [
        ("self-training", "gaussian_noise/3", "gaussian_noise", 3, "erm"),
        ("elr", "A-D", "A-D", 0, "erm"),
        ("ancon", "A-D", "A-D", 0, "erm"),
    ]
    assert left_out == []
    inputs = {"images": {"photos": {"number": 9}}}  # of a Python call
    made = write_run(tmp_path, "ancon", data=None, source=[], target=[], checkpoint=None, inputs=inputs)
    (run,) = read_runs([made])[0].itertuples()
    assert run.dataset == "photos"
    assert run.column == "photos"
    assert run.start == "checkpoint"


def test_nothing_to_report(tmp_path):
    write_source(tmp_path, "A", 0)
    with one_line("no finished adaptation"):
        read_runs([tmp_path])
    (write_run(tmp_path, "ancon") / "result.json").write_text("{}")
    with one_line(r"no finished adaptation in .*; left out: .*cannot be read as a finished"):
        read_runs([tmp_path])
    for folder in ("a", "b"):
        write_run(tmp_path / folder, "ancon")
    with one_line(r"a/erm/A-D/ancon-seed0 and .*/b/.* hold the same run; give one of them"):
        write_report([tmp_path], out=tmp_path / "report")


def variants(folder):
    """Of each row of a table, with its start and method."""
    runs = read_runs([folder])[0]
    return [*runs[["start", "method", "variant"]].drop_duplicates().itertuples(index=False, name=None)]


def test_runs_that_differ_in_their_settings_are_rows_of_their_own(tmp_path):
    for seed, method in ((0, "ancon"), (1, "ancon"), (0, "elr")):
        write_run(tmp_path, method, "A-D", seed)
    write_run(tmp_path, "ancon", "D-A", workers=9, root="elsewhere", inputs={"target": "abc"})
    assert variants(tmp_path) == [("erm", "elr", ""), ("erm", "ancon", "")]
    write_run(tmp_path, "ancon", "A-D", smoothing=0.7, arch="resnet34")
    assert variants(tmp_path)[-1] == ("erm", "ancon", "arch resnet34, smoothing 0.7")
    write_source(tmp_path / "stage", "A", 1, epochs=7)
    for seed in (0, 1, 2):
        write_run(tmp_path / "stage", "ancon", "A-D", seed)
    write_source(tmp_path / "stage", "A", 1, epochs=7)
    assert variants(tmp_path / "stage")[-1] == ("erm", "ancon", "source epochs 7")


DAMAGES = [
    ("config.json", '"seed": 0', '"seed": "zero"'),
    ("config.json", '"target": ["D"]', '"target": [1]'),
    ("../../../source/erm-A-seed0/config.json", "}", ""),
    ("result.json", '"start"', '"begin"'),
    ("result.json", '"accuracy": 40.0', '"accuracy": "high"'),
    ("metrics.jsonl", "}", ""),
    ("metrics.jsonl", '"accuracy": 40.0', f'"accuracy": {"9" * 400}'),
]
"""A file, and what stands in it in place of a part."""


@pytest.fixture
def runs(tmp_path):
    """A run to damage, and one beside it that starts from another source model."""
    return write_run(tmp_path / "runs", "ancon", "A-D"), write_run(tmp_path / "runs", "ancon", "D-A")


def reported(tmp_path):
    """The text of the report of these runs."""
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    return (tmp_path / "report/report.md").read_text()


@pytest.mark.parametrize(("name", "before", "after"), DAMAGES)
def test_a_damaged_run_is_left_out_with_a_note_that_names_it(runs, tmp_path, name, before, after):
    damaged, good = runs
    file = damaged / name
    content = file.read_text()
    assert before in content
    file.write_text(content.replace(before, after))
    found, left_out = read_runs([tmp_path / "runs"])
    assert found.path.tolist() == [good]
    assert left_out
    for note in left_out:
        assert str(damaged) in note or str(tmp_path / "runs/source/erm-A-seed0") in note
        assert "\n" not in note
        assert len(note) < 600


def test_settings_that_methods_or_the_plan_do_not_share_are_listed(tmp_path):
    pair = {"pair": "Synthetic-Real", "data": "VisDA2017"}
    write_run(tmp_path / "runs", "self-training", **pair, epochs=12)
    write_run(tmp_path / "runs", "adabn", **pair, optimizer=None, lr=None)
    text = reported(tmp_path)
    assert "- epochs: 1 of adabn; 12 of self-training" in text
    assert "- lr: " not in text
    (tmp_path / "runs/benchmark.json").write_text('{"table": "visda"}')
    text = reported(tmp_path)
    assert text.startswith("## VisDA")
    assert "- epochs: 1 of adabn; 12 of self-training; 15 of the paper's plan" in text
    assert "- source epochs: 10 of the paper's plan; " in text
    assert "### mean accuracy of the classes in %" in text
    assert "| self-training (paper) | 67.77 |" in text
    (tmp_path / "runs/benchmark.json").write_text('{"table": "imagenet-c"}')
    assert "paper" not in reported(tmp_path)  # whose plan is for another dataset


def test_runs_without_labels_are_left_out_by_name(runs, tmp_path):
    unlabelled = write_run(tmp_path / "runs", "ancon", "A-W", labelled=False)
    text = reported(tmp_path)
    assert f"left out: {unlabelled}: its target has no labels; read its scores from metrics.jsonl" in text.replace(
        "\\", ""
    )
    assert "A-W" not in text.partition("### accuracy")[2]
    made = {path.name for path in (tmp_path / "report").iterdir()}
    assert made == {"report.md", "report.html", "runs.csv", "epochs.png"}


def test_the_numbers_are_those_of_the_selected_epoch_and_the_page_loads_nothing(tmp_path):
    run = write_run(tmp_path / "runs", "ancon", accuracies=(40.0, 90.46, 82.66))
    write_predictions(run)
    text = reported(tmp_path)
    assert "82.66" in text
    assert "90.46" not in text
    page = (tmp_path / "report/report.html").read_text()
    assert set(re.findall(r"""(?:src|href)\s*=\s*["']?(.{22})""", page)) == {"data:image/png;base64,"}
    assert "url(" not in page
    assert "@import" not in page
