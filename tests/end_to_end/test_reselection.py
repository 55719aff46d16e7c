from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import main
from tllib_ancon.selection import CRITERIA


@pytest.fixture(scope="module")
def run(domains: Path, source_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("kept") / "run"
    start = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--epochs", "3", "--lr", "0.05", "--save-epochs"]
    assert main(["adapt", *small_arguments(domains), *start, "--log", str(log)]) == 0
    return log


def rewrite(run: Path, copy: Path, **scores: list[float]) -> Path:
    """A run directory with other scores of its epochs."""
    copy.mkdir()
    (copy / "config.json").write_text((run / "config.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name, values in scores.items():
        for line, value in zip(lines, values, strict=True):
            line[name] = value
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return copy


def test_every_epoch_is_kept_and_the_last_is_latest(run: Path) -> None:
    kept = {path.name for path in (run / "checkpoints").iterdir()}
    assert kept == {"best.pth", "latest.pth", *(f"epoch-{epoch:03d}.pth" for epoch in range(4))}
    last, latest = (
        torch.load(run / "checkpoints" / name, weights_only=True) for name in ("epoch-003.pth", "latest.pth")
    )
    assert all(torch.equal(last[name], latest[name]) for name in latest)
    first = torch.load(run / "checkpoints" / "epoch-000.pth", weights_only=True)
    assert not all(torch.equal(first[name], latest[name]) for name in latest)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_written_model_is_the_one_the_criterion_prefers(run: Path, tmp_path: Path, criterion: str, capsys) -> None:
    scores = [0.9 if CRITERIA[criterion].higher_is_better else 0.1, 0.5, 0.4, 0.6]
    copy = rewrite(run, tmp_path / "copy", **{criterion: scores})
    (copy / "checkpoints").symlink_to(run / "checkpoints")
    expected = 3 if CRITERIA[criterion].higher_is_better else 2
    out = tmp_path / "chosen.pth"
    assert main(["evaluate", "--select", str(copy), "--criterion", criterion, "--out", str(out)]) == 0
    assert out.read_bytes() == (run / "checkpoints" / f"epoch-{expected:03d}.pth").read_bytes()
    assert f"epoch {expected}, by {criterion}" in capsys.readouterr().out


def test_the_table_and_the_largest_change(run: Path, tmp_path: Path, capsys) -> None:
    copy = rewrite(
        run,
        tmp_path / "copy",
        infomax=[0.9, 0.1, 0.2, 0.3],
        corr_c=[0.0, 0.1, 0.2, 0.3],
        mean_entropy=[0.0, 0.2, 0.1, 0.3],
        marginal_entropy=[0.0, 0.2, 0.1, 0.3],
        snd=[0.0, 0.2, 0.1, 0.1],
        nuclear_norm=[0.0, 0.2, 0.3, 0.1],
        aetta=[0.0, 0.4, 0.3, 0.1],
        accuracy=[50.0, 60.0, 61.5, 63.25],
    )
    assert main(["evaluate", "--select", str(copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    chosen = {line.split()[0]: line.split()[1] for line in lines if line.split()[:1] and line.split()[0] in CRITERIA}
    assert chosen == {
        "infomax": "3",
        "corr_c": "1",
        "mean_entropy": "2",
        "marginal_entropy": "2",
        "snd": "1",
        "nuclear_norm": "2",
        "aetta": "1",
    }
    assert any(line.startswith("3.25 for infomax, corr_c, mean_entropy; 3.25 for all") for line in lines)


def test_without_labels_there_is_no_accuracy(run: Path, tmp_path: Path, capsys) -> None:
    copy = rewrite(run, tmp_path / "copy")
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in line.items() if name in {"epoch", *CRITERIA}} for line in lines]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert main(["evaluate", "--select", str(copy)]) == 0
    shown = capsys.readouterr().out
    assert "infomax" in shown
    assert "accuracy" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--select RUN_DIR"),
        (["--select", "nowhere"], "is not a run directory"),
        (["--select", "SOURCE"], "no adapted epoch"),
        (["--select", "COPY", "--out", "x.pth"], "did not keep the model of epoch"),
        (["ROOT", "-t", "dark", "--checkpoint", "x.pth", "--out", "y.pth"], "--out writes the model that --select"),
    ],
)
def test_what_is_refused(run: Path, source_checkpoint: Path, tmp_path: Path, capsys, arguments, message) -> None:
    places = {"SOURCE": source_checkpoint.parents[1], "COPY": rewrite(run, tmp_path / "copy"), "ROOT": tmp_path}
    assert main(["evaluate", *(str(places.get(word, word)) for word in arguments)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"[]"),
        ("config.json", b"{"),
        ("metrics.jsonl", b'{"epoch": 1, "infomax": 0.5}\n{"epoch": 2, "inf'),
        ("metrics.jsonl", b"[1]\n"),
        ("metrics.jsonl", b'{"epoch": 1, "infomax": "high"}\n'),
        ("metrics.jsonl", b"\xff"),
        ("result.json", b""),
        ("result.json", b"[]"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(run: Path, tmp_path: Path, capsys, name: str, content: bytes) -> None:
    copy = rewrite(run, tmp_path / "copy")
    (copy / name).write_bytes(content)
    assert main(["evaluate", "--select", str(copy), "--out", str(tmp_path / "chosen.pth")]) == 2
    shown = capsys.readouterr().err
    assert str(copy / name) in shown
    assert shown.count("\n") == 1


def test_criteria_that_a_run_has_not_are_left_out_of_the_table(run: Path, tmp_path: Path, capsys) -> None:
    copy = rewrite(run, tmp_path / "copy")
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in line.items() if name != "corr_c"} for line in lines]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert main(["evaluate", "--select", str(copy)]) == 0
    shown = capsys.readouterr().out
    assert "infomax" in shown
    assert "corr_c" not in shown


def test_a_repeated_run_removes_the_epochs_of_the_one_before(domains, source_checkpoint, tmp_path) -> None:
    def adapt(*more: str) -> set[str]:
        start = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--log", str(tmp_path / "run")]
        assert main(["adapt", *small_arguments(domains), *start, *more]) == 0
        return {path.name for path in (tmp_path / "run" / "checkpoints").glob("epoch-*")}

    assert len(adapt("--epochs", "2", "--save-epochs")) == 3
    assert adapt("--epochs", "1", "--overwrite") == set()
