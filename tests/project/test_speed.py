"""Each figure of the benchmarks of speed is printed and stored."""

import pandas as pd
import pytest

from benchmarks.speed import step
from benchmarks.speed.__main__ import main
from benchmarks.speed.timing import row


def test_the_command_prints_each_row_and_stores_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(step, "measure", lambda: [row("a step", [1.5, 2, 2.5], "ms")])
    main(["--out", str(tmp_path / "speed.csv")])
    assert "1.75" in capsys.readouterr().out
    (written,) = pd.read_csv(tmp_path / "speed.csv").itertuples()
    assert (written.median, written.third_quartile) == (2, 2.25)


def test_the_ratio_of_a_step_is_that_of_its_parts():
    plain, added, ratio = step.measure(rounds=2)
    assert ratio.median == pytest.approx(1 + added.median / plain.median)
