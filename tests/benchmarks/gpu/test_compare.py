from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import compare


def write(run: Path, weight: float, accuracy: float, speed: float) -> Path:
    (run / "checkpoints").mkdir(parents=True)
    for name in compare.CHECKPOINTS:
        torch.save(
            {"weight": torch.tensor([weight, float("nan")]), "count": torch.tensor(3)}, run / "checkpoints" / name
        )
    lines = [{"epoch": epoch, "accuracy": accuracy, "images_per_second": speed} for epoch in (0, 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_runs_that_differ_in_speed_alone_are_the_same(tmp_path: Path, capsys) -> None:
    first, second = write(tmp_path / "a", 1.0, 50.0, 10.0), write(tmp_path / "b", 1.0, 50.0, 20.0)
    assert compare.main([str(first), str(second)]) == 0
    assert "same bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("weight", "accuracy", "found"),
    [
        (1.0000001, 50.0, ["best.pth: weight", "latest.pth: weight"]),
        (-0.0, 50.0, ["best.pth: weight", "latest.pth: weight"]),
        (1.0, 50.1, ["epoch 0", "epoch 1"]),
    ],
)
def test_any_bit_is_a_difference(tmp_path: Path, capsys, weight: float, accuracy: float, found: list[str]) -> None:
    first = write(tmp_path / "a", 0.0 if weight == 0 else 1.0, 50.0, 10.0)
    assert compare.main([str(first), str(write(tmp_path / "b", weight, accuracy, 10.0))]) == 1
    assert capsys.readouterr().out.splitlines() == found


def test_a_missing_epoch_is_a_difference(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", 1.0, 50.0, 1.0), write(tmp_path / "b", 1.0, 50.0, 1.0)
    (second / "metrics.jsonl").write_text((second / "metrics.jsonl").read_text().splitlines()[0] + "\n")
    assert compare.differences(first, second) == ["2 and 1 epochs"]
