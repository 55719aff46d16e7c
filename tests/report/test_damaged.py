"""Files of a run that were damaged: the run is left out with a note, and the others are reported."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.report.fabricated import write_predictions, write_run
from tllib_ancon.cli.main import main
from tllib_ancon.errors import UserError
from tllib_ancon.report.runs import read_records, read_runs
from tllib_ancon.training import saved_predictions


def changed(name: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Damage that changes what a JSON file holds."""

    def damage(run: Path) -> None:
        content = json.loads((run / name).read_text())
        replaced = change(content)
        (run / name).write_text(json.dumps(content if replaced is None else replaced))

    return damage


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(content) and None


def cut(name: str, lines: int) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        kept = (run / name).read_text().splitlines(keepends=True)[:lines]
        (run / name).write_text("".join(kept))

    return damage


DAMAGES = {
    "config-list": ("config.json", changed("config.json", lambda content: [content])),
    "config-empty": ("config.json", written("config.json", b"")),
    "config-without-method": ("config.json", changed("config.json", lambda content: content.pop("method") and None)),
    "config-seed": ("config.json", changed("config.json", lambda content: content.update(seed="zero"))),
    "config-target": ("config.json", changed("config.json", lambda content: content.update(target=[1]))),
    "config-versions": ("config.json", changed("config.json", lambda content: content.update(versions="2.x"))),
    "config-no-text": ("config.json", written("config.json", b"\xff\xfe\x00")),
    "config-deep": ("config.json", written("config.json", b"[" * 100_000)),
    "result-list": ("result.json", written("result.json", b"[]")),
    "result-without-start": ("result.json", changed("result.json", lambda content: content.pop("start") and None)),
    "result-text": ("result.json", changed("result.json", lambda content: content["start"].update(accuracy="high"))),
    "result-part": ("result.json", changed("result.json", lambda content: content["last"].pop("ece") and None)),
    "result-nan": ("result.json", changed("result.json", lambda content: content["start"].update(accuracy=np.nan))),
    "metrics-cut-line": ("metrics.jsonl", written("metrics.jsonl", b'{"epoch": 0')),
    "metrics-missing-epoch": ("metrics.jsonl", cut("metrics.jsonl", 2)),
    "metrics-missing": ("metrics.jsonl", lambda run: (run / "metrics.jsonl").unlink()),
    "metrics-list": ("metrics.jsonl", written("metrics.jsonl", b"[1]\n")),
    "source": ("config.json", lambda run: (run.parents[2] / "source/erm-A-seed0/config.json").write_text("{") and None),
}


JUNK = st.sampled_from([None, True, -1, 1e308, math.nan, "", "x" * 900, "\ud800", [], [1], {}, {"a": 1}, [[]], 2**70])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_entry_of_any_file_may_be_anything(tmp_path: Path, monkeypatch, data: st.DataObject) -> None:
    """The report is made, or one line says why not."""
    monkeypatch.setattr("tllib_ancon.report.report.figures", lambda *_: ([], []))
    write_run(tmp_path / "runs", "ancon", "D-A")
    run = write_run(tmp_path / "runs", "ancon", "A-D")
    name = data.draw(st.sampled_from(["config.json", "result.json", "metrics.jsonl"]))
    lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
    part = data.draw(st.sampled_from(lines))
    while isinstance(part, dict) and part:
        key = data.draw(st.sampled_from(sorted(part)))
        if not isinstance(part[key], dict) or data.draw(st.booleans()):
            if data.draw(st.booleans()):
                part[key] = data.draw(JUNK)
            else:
                del part[key]
            break
        part = part[key]
    (run / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) in (0, 2)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """A run to damage, and one beside it that starts from another source model."""
    return write_run(tmp_path / "runs", "ancon", "A-D"), write_run(tmp_path / "runs", "ancon", "D-A")


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_left_out_with_a_note_that_names_its_file(
    runs: tuple[Path, Path], tmp_path: Path, name: str, damage: Callable[[Path], None], capsys
) -> None:
    damaged, good = runs
    damage(damaged)
    found, left_out = read_runs([tmp_path / "runs"])
    assert [run.path for run in found] == [good]
    assert left_out
    for note in left_out:
        assert name in note
        assert "\n" not in note
        assert len(note) < 600
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert "1 adaptation, seed 0" in (tmp_path / "report/report.md").read_text()
    assert "left out: " in capsys.readouterr().out
    assert "left out: " in (tmp_path / "report/report.html").read_text()


def test_if_nothing_is_left_the_reason_is_said(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for run in runs:
        (run / "result.json").write_text("{}")
    with pytest.raises(UserError, match=r"no finished adaptation in .*result.json has no 'criterion'"):
        read_runs([tmp_path / "runs"])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"table": 1, "failures": []}', b'{"table": "office31", "failures": ["x"]}']
)
def test_a_damaged_record_of_a_benchmark_is_noted(runs: tuple[Path, Path], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs/benchmark.json").write_bytes(content)
    records, notes = read_records([tmp_path / "runs/benchmark.json", tmp_path / "none.json"])
    assert records == []
    assert len(notes) == 1
    assert "benchmark.json" in notes[0]
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert "benchmark.json" in (tmp_path / "report/report.md").read_text()


def test_predictions_that_unpack_to_much_do_not_end_the_report(
    runs: tuple[Path, Path], tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(saved_predictions, "FEW_BYTES", 2**16)
    zeros = np.zeros((100_000, 2), np.float32)
    np.savez_compressed(runs[0] / "predictions.npz", indices=np.zeros(len(zeros), np.uint8), logits=zeros)
    write_predictions(runs[1])
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert "MB that unpack to" in (tmp_path / "report/report.md").read_text()
    assert (tmp_path / "report/confusion.png").is_file()


def test_without_labels_and_with_labels_in_one_folder(tmp_path: Path, capsys) -> None:
    write_run(tmp_path / "runs", "ancon", "A-D", labelled=False, votes=True)
    write_run(tmp_path / "runs", "ancon", "D-A")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr().out
    assert "1 adaptation without labels" in shown
    made = {path.name for path in (tmp_path / "report").iterdir()}
    assert {"accuracy.csv", "ece.csv", "infomax.csv", "votes.csv", "threshold.csv"} <= made
    assert {"epochs.png", "epochs-without-labels.png"} <= made
    assert "A-D" not in (tmp_path / "report/accuracy.csv").read_text()
    assert "D-A" not in (tmp_path / "report/infomax.csv").read_text()


def test_a_domain_whose_name_is_markup_stays_text(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "ancon", "A-D", target=["<img src=x onerror=alert(1)>|"])
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    for name in ("report.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert "<img src=x" not in text
        assert "&lt;img src=x" in text
    assert r"alert(1)&gt;\|" in (tmp_path / "report/report.md").read_text()


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_one_line_that_names_the_file(
    runs: tuple[Path, Path], tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 2
    shown = capsys.readouterr().err
    assert str(tmp_path / "report/report.md") in shown
    assert "No space left on device" in shown
    assert shown.count("\n") == 1
    assert list((tmp_path / "report").iterdir()) == []


def test_a_file_where_the_folder_should_be(runs: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    (tmp_path / "report").write_text("")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 2
    assert f"the folder {tmp_path / 'report'} of the report cannot be made" in capsys.readouterr().err
