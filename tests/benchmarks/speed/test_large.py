from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.speed import large
from benchmarks.speed.__main__ import main
from tllib_ancon.data.domains import open_domain


def test_pictures_are_made_when_they_are_asked_for() -> None:
    drawn = large.Drawn(10**9)
    assert torch.equal(drawn[5], drawn[5])
    assert not torch.equal(drawn[5], drawn[6])
    assert drawn[10**9 - 1].shape == (3, 64, 64)


def test_a_list_of_distinct_paths_to_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "FILES", 3)
    large.write_list(tmp_path, 8)
    large.write_list(tmp_path, 5)
    assert len(list((tmp_path / "pictures").iterdir())) == 3
    for count in (8, 5):
        paths = open_domain(tmp_path, "ImageList", [f"target{count}"]).paths
        assert paths is not None
        assert len(set(map(str, paths))) == count


def test_a_clock_ends_what_it_measures() -> None:
    clock = large.Clock(steps=2)
    clock.tick(learns=False, images=7)
    clock.tick(learns=True, images=64)
    clock.tick(learns=False, images=9)
    clock.tick(learns=True, images=64)
    assert clock.evaluated == 7
    with pytest.raises(large.Enough):
        clock.tick(learns=True, images=64)


def test_memory_is_counted_from_where_it_is_asked_for() -> None:
    assert 60e6 < large.in_a_process(memory_of_a_block, 2**24)["bytes"] < 100e6


def memory_of_a_block(count: int) -> dict[str, float]:
    before = large.memory()
    block = torch.ones(count)  # 67 MB: beyond what malloc ever takes from memory that is free already
    del block
    return {"bytes": large.peak_memory() - before}


def test_an_adaptation_is_measured_and_continues(tmp_path: Path) -> None:
    figures = large.adapt_some_steps(4000)
    assert figures["scored before it, pictures"] < 500
    assert figures["a step, ms"] > 0
    continued = large.continue_after_an_epoch(tmp_path, 640)
    assert continued["scored before it, pictures"] < 10
    assert continued["run directory, MB"] > 1e4


def test_predict_takes_little_beside_its_answers() -> None:
    assert large.in_a_process(large.predict_all, 20_000)["memory beside the answers, MB"] < 20e6


def test_answers_in_a_file(tmp_path: Path) -> None:
    assert large.write_predictions(tmp_path, 70)["a picture, ms"] > 0
    assert len((tmp_path / "predictions70.csv").read_text().splitlines()) == 71


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(
        large, "in_a_process", lambda work, count: {"opened, s": count / 1e6, "memory, MB": count * 1e3}
    )
    assert main(["--large", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "a list: opened, N = 1,000,000" in shown
    assert "≤ 150  NOT MET" in shown
    assert len(json.loads((tmp_path / "large.json").read_text())["figures"]["large"]) == 6 * 2 * 2
    assert main(["--large", "cache", "predict", "--out", str(tmp_path)]) == 0
    names = {row["name"].split(":")[0] for row in json.loads((tmp_path / "large.json").read_text())["figures"]["large"]}
    assert names == {"adapt with --cache", "predict"}
