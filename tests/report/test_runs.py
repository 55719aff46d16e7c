from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.report.fabricated import write_run, write_source
from tllib_ancon.errors import UserError
from tllib_ancon.paper import plan
from tllib_ancon.report import report
from tllib_ancon.report.report import write_report
from tllib_ancon.report.runs import deviations, read_runs, refuse_mixed_settings, settings


def test_adaptations_are_found_wherever_they_lie(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "ancon", "A-D", seed=1)
    write_run(tmp_path / "b/c", "self-training", "D-A")
    runs = read_runs([tmp_path / "a", tmp_path / "b", tmp_path / "b/c"])[0]
    assert [(run.method, run.column, run.seed, run.start) for run in runs] == [
        ("self-training", "D-A", 0, "erm"),
        ("ancon", "A-D", 1, "erm"),
    ]


def test_an_unfinished_run_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon")
    (write_run(tmp_path, "elr") / "result.json").unlink()
    assert [run.method for run in read_runs([tmp_path])[0]] == ["ancon"]


def test_columns_and_severities(tmp_path: Path) -> None:
    (run,) = read_runs([write_run(tmp_path, "ancon", "gaussian_noise/3")])[0]
    assert (run.column, run.severity, run.target) == ("gaussian_noise", 3, "gaussian_noise/3")
    (run,) = read_runs([write_run(tmp_path, "ancon", "A-D")])[0]
    assert (run.column, run.severity) == ("A-D", None)


def test_the_source_is_found_after_the_folder_was_moved(tmp_path: Path) -> None:
    write_run(tmp_path / "made", "ancon")
    shutil.move(tmp_path / "made", tmp_path / "moved")
    (run,) = read_runs([tmp_path / "moved"])[0]
    assert run.start == "erm"
    shutil.rmtree(tmp_path / "moved/source")
    (run,) = read_runs([tmp_path / "moved"])[0]
    assert (run.start, run.source) == ("checkpoint", {})


def test_the_folder_of_both_stages_holds_one_adaptation(tmp_path: Path) -> None:
    run = write_run(tmp_path, "ancon")
    shutil.copy(run / "result.json", tmp_path / "result.json")
    assert [found.path for found in read_runs([tmp_path])[0]] == [run]


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        read_runs([tmp_path / "none"])
    write_source(tmp_path, "A", 0)
    with pytest.raises(UserError, match="no finished adaptation"):
        read_runs([tmp_path])[0]


def test_a_run_without_labels_is_a_run(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", labelled=False)
    write_run(tmp_path, "elr")
    runs, left_out = read_runs([tmp_path])
    assert {run.method: run.labelled for run in runs} == {"ancon": False, "elr": True}
    assert left_out == []


def test_a_run_that_python_made_of_a_model_and_images(tmp_path: Path) -> None:
    inputs = {"images": {"photos": {"number": 9}}, "classes": ["mug", "bike"]}
    made = write_run(tmp_path, "ancon", data=None, source=[], target=[], checkpoint=None, inputs=inputs)
    (run,) = read_runs([made])[0]
    assert (run.dataset, run.target, run.column, run.start) == ("photos", "photos", "photos", "checkpoint")
    assert run.classes == ["mug", "bike"]


def test_runs_of_one_table_may_differ_in_what_tells_them_apart(tmp_path: Path) -> None:
    for seed in (0, 1):
        for method in ("ancon", "elr"):
            write_run(tmp_path, method, "A-D", seed)
    write_run(tmp_path, "ancon", "D-A", workers=9, root="elsewhere", record_every=5, inputs={"target": "abc"})
    refuse_mixed_settings(read_runs([tmp_path])[0], [])


@pytest.mark.parametrize("changed", [{"epochs": 12}, {"data": "OfficeHome"}, {"arch": "resnet34"}, {"image_size": 96}])
def test_different_settings_are_refused_and_named(tmp_path: Path, changed: dict) -> None:
    write_run(tmp_path, "ancon", "A-D")
    other = write_run(tmp_path, "self-training", "A-D", **changed)
    ((name, value),) = changed.items()
    with pytest.raises(UserError, match=f"{name}: ") as refused:
        refuse_mixed_settings(read_runs([tmp_path])[0], [])
    assert json.dumps(value) in str(refused.value)
    assert str(other) in str(refused.value)


def test_another_source_stage_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", "A-D", seed=0)
    write_run(tmp_path, "ancon", "A-D", seed=1)
    write_source(tmp_path, "A", 1, epochs=7)
    with pytest.raises(UserError, match=r"source epochs of erm: 50 in .*, 7 in "):
        refuse_mixed_settings(read_runs([tmp_path])[0], [])


def test_the_bottleneck_is_that_of_the_start_and_compared_within_the_start(tmp_path: Path) -> None:
    for start, width in (("cdan", 256), ("mdd", 2048)):
        write_run(tmp_path / start, "ancon", bottleneck_dim=width)
        write_source(tmp_path / start, "A", 0, method=start, bottleneck_dim=width)
    refuse_mixed_settings(read_runs([tmp_path])[0], [])
    write_run(tmp_path / "mdd", "elr", bottleneck_dim=1024)
    write_source(tmp_path / "mdd", "A", 0, method="mdd", bottleneck_dim=2048)
    with pytest.raises(UserError, match=r"bottleneck_dim of mdd: 1024 in .*, 2048 in "):
        refuse_mixed_settings(read_runs([tmp_path])[0], [])


def test_a_methods_own_options_are_compared_within_the_method(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", "A-D")
    write_run(tmp_path, "elr", "A-D", elr_coefficient=7.0)
    refuse_mixed_settings(read_runs([tmp_path])[0], [])
    write_run(tmp_path, "elr", "A-D", seed=1)
    with pytest.raises(UserError, match="elr_coefficient of elr"):
        refuse_mixed_settings(read_runs([tmp_path])[0], [])


def test_what_the_table_compares_may_vary(tmp_path: Path) -> None:
    for smoothing in (0.1, 0.9):
        write_run(tmp_path, "ancon", smoothing=smoothing)
    runs = read_runs([tmp_path])[0]
    refuse_mixed_settings(runs, ["smoothing"])
    with pytest.raises(UserError, match="smoothing of ancon"):
        refuse_mixed_settings(runs, ["beta"])


def test_deviations_from_the_plan_are_told_once(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "ancon", seed=seed, arch="small_cnn", epochs=5)
        write_source(tmp_path, "A", seed, arch="small_cnn", pretrained_weights="/somewhere/weights.pth")
    runs = read_runs([tmp_path])[0]
    planned = settings(runs[0]) | {"arch": "resnet50", "source arch": "resnet50", "epochs": 30, "scale": (0.5, 1.0)}
    assert deviations(runs, {"erm": planned}, []) == [
        "arch: small_cnn, in the paper's plan resnet50",
        "epochs: 5, in the paper's plan 30",
        "pre-trained weights: weights.pth",
    ]
    assert deviations(runs, {"erm": planned}, ["epochs", "arch"]) == ["pre-trained weights: weights.pth"]


def test_the_plan_of_cdan_and_mdd_is_no_deviation_from_itself() -> None:
    planned = report._planned(plan.load("uda"))
    widths = {
        start: (settings["bottleneck_dim"], settings["source bottleneck_dim"]) for start, settings in planned.items()
    }
    assert widths == {"cdan": (256, 256), "mdd": (2048, 2048)}


def test_of_many_differences_some_are_said(tmp_path: Path) -> None:
    for number in range(5):
        made = {"epochs": 5 + number, "lr": 0.1 + number, "momentum": 0.1 * number, "weight_decay": 0.1 * number}
        write_run(tmp_path, "ancon", "A-D", number, **made)
    with pytest.raises(UserError, match=r"5 in .*, 6 in .*, 7 in .*, and 2 more; .*; and 1 more\)"):
        refuse_mixed_settings(read_runs([tmp_path])[0], [])


def test_a_method_may_have_its_own_default_and_the_report_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon", "A-D")
    write_run(tmp_path, "ancon-auto", "A-D")
    write_run(tmp_path, "adabn", "A-D")
    text = write_report([tmp_path], out=tmp_path / "report")
    assert "- ancon-auto by its own default: criterion last" in text
    assert "- adabn by its own default: epochs 1, adapted all" in text
    write_run(tmp_path, "elr", "A-D", criterion="last")
    with pytest.raises(UserError, match="criterion: "):
        refuse_mixed_settings(read_runs([tmp_path])[0], [])
