from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tllib_ancon import methods
from tllib_ancon.cli.main import main


def adapt_arguments(domains: Path, checkpoint: Path, log: Path, *more: str) -> list[str]:
    start = ["-t", "dark", "--checkpoint", str(checkpoint), "--epochs", "2", "--log", str(log)]
    return ["adapt", *small_arguments(domains), *start, *more]


def test_pretrain_leaves_a_run_directory(source_checkpoint: Path) -> None:
    run = source_checkpoint.parents[1]
    assert json.loads((run / "config.json").read_text())["arch"] == "small_cnn"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 12
    assert json.loads((run / "result.json").read_text())["selected"]["accuracy"] > 90


@pytest.mark.parametrize("method", methods.names())
def test_adapt_by_every_method(domains: Path, source_checkpoint: Path, tmp_path: Path, method: str, capsys) -> None:
    assert main(adapt_arguments(domains, source_checkpoint, tmp_path / "run", "--method", method)) == 0
    run = tmp_path / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((run / "result.json").read_text())
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert {"infomax", "corr_c", "mean_entropy", "accuracy", "ece", "mean_class_accuracy"} <= lines[-1].keys()
    assert result["start"] == lines[0]
    last = methods.training_defaults(method).get("criterion") == "last"
    assert result["selected"] == (lines[-1] if last else max(lines[1:], key=lambda line: line["infomax"]))
    assert {path.name for path in (run / "checkpoints").iterdir()} >= {"best.pth", "latest.pth"}
    assert ("selected (last)" if last else "selected by infomax") in capsys.readouterr().out


def test_the_selected_checkpoint_is_the_one_that_is_reported(domains, source_checkpoint, tmp_path) -> None:
    run = tmp_path / "run"
    main(adapt_arguments(domains, source_checkpoint, run, "--epochs", "4"))
    arguments = [word for word in small_arguments(domains) if word not in ("-s", "bright", "--quiet")]
    checkpoint = [
        "-t",
        "dark",
        "--checkpoint",
        str(run / "checkpoints" / "best.pth"),
        "--json",
        str(tmp_path / "scores.json"),
    ]
    assert main(["evaluate", *arguments, *checkpoint]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    selected = json.loads((run / "result.json").read_text())["selected"]
    assert scores["accuracy"] == selected["accuracy"]
    assert scores["ece"] == pytest.approx(selected["ece"], abs=1e-6)


def test_evaluate_shows_each_class(domains: Path, source_checkpoint: Path, capsys) -> None:
    arguments = [word for word in small_arguments(domains) if word not in ("-s", "bright", "--quiet")]
    assert main(["evaluate", *arguments, "-t", "dark", "--checkpoint", str(source_checkpoint), "--per-class-eval"]) == 0
    shown = capsys.readouterr().out
    assert "ECE (15 bins)" in shown
    assert all(name in shown for name in ("red", "green", "blue"))


def test_the_head_stays_and_the_rest_moves(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    main(adapt_arguments(domains, source_checkpoint, tmp_path / "run"))
    before, after = (
        torch.load(path, weights_only=True) for path in (source_checkpoint, tmp_path / "run/checkpoints/latest.pth")
    )
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"backbone", "bottleneck"}


def test_labels_of_the_target_change_nothing_but_the_record(
    domains: Path, source_checkpoint: Path, tmp_path: Path
) -> None:
    relabelled = tmp_path / "relabelled"
    shutil.copytree(domains, relabelled)
    lists = relabelled / "image_list" / "dark.txt"
    lists.write_text("".join(line.rsplit(" ", 1)[0] + " 0\n" for line in lists.read_text().splitlines()))
    checkpoints = []
    for root in (domains, relabelled):
        log = tmp_path / f"run-{root.name}"
        assert main(adapt_arguments(root, source_checkpoint, log)) == 0
        checkpoints.append(torch.load(log / "checkpoints" / "best.pth", weights_only=True))
    assert all(torch.equal(checkpoints[0][name], checkpoints[1][name]) for name in checkpoints[0])


def test_an_unlabelled_target_is_adapted_without_a_record(
    domains: Path, source_checkpoint: Path, tmp_path: Path
) -> None:
    root = tmp_path / "unlabelled"
    shutil.copytree(domains, root)
    lists = root / "image_list" / "dark.txt"
    lists.write_text("".join(line.rsplit(" ", 1)[0] + "\n" for line in lists.read_text().splitlines()))
    assert main(adapt_arguments(root, source_checkpoint, tmp_path / "run")) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert "accuracy" not in result["selected"]
    assert result["selected"]["infomax"] > 0


def test_one_held_out_image_is_scored_by_what_one_image_is_enough_for(
    domains, source_checkpoint, tmp_path, capsys
) -> None:
    arguments = adapt_arguments(domains, source_checkpoint, tmp_path / "run", "--hold-out", "0.02")
    assert main(arguments) == 0
    selected = json.loads((tmp_path / "run" / "result.json").read_text())["selected"]
    assert "infomax" in selected
    assert "snd" not in selected
    assert main([*arguments, "--overwrite", "--criterion", "snd"]) == 2
    assert "--criterion snd needs more than the one image that is held out" in capsys.readouterr().err


def test_no_smoothing_equals_self_training(domains: Path, source_checkpoint: Path, tmp_path: Path) -> None:
    for name, more in (("ancon", ["--smoothing", "0"]), ("self-training", [])):
        assert main(adapt_arguments(domains, source_checkpoint, tmp_path / name, "--method", name, *more)) == 0
    first, second = (
        torch.load(tmp_path / name / "checkpoints" / "latest.pth", weights_only=True)
        for name in ("ancon", "self-training")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_demo(tmp_path: Path, capsys) -> None:
    few = ["--seeds", "0", "--epochs", "1", "--source-epochs", "1", "--jobs", "1"]
    assert main(["demo", "--out", str(tmp_path), *few, "--quiet"]) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    methods = ["source-only", "adabn", "self-training", "elr", "ancon", "ancon-auto"]
    assert list(summary) == [*methods, "full learning rate", "seconds"]
    for block in (summary, summary["full learning rate"]):
        assert 10 < block["ancon"]["accuracy"] <= 100
        assert 0 <= block["ancon"]["ece"] <= 1
        assert len(block["ancon"]["per_seed"]) == 1
    start = json.loads((tmp_path / "ancon-seed0" / "metrics.jsonl").read_text().splitlines()[0])
    assert summary["source-only"]["accuracy"] == start["accuracy"]
    for name in ("curves", "curves-full-learning-rate"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert "source-only" in shown
    assert "full learning rate" in shown


def test_python_m_and_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tllib_ancon", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("tllib-ancon ")


def test_help_names_every_command(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("demo", "pretrain", "adapt", "evaluate"))
