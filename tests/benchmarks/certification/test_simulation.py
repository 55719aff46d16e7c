from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.certification.__main__ import TABLE, main
from benchmarks.certification.simulation import (
    false_verdicts,
    independent,
    shuffled,
    simulated,
    z_test_after_every_label,
)


def test_a_population_has_the_shares_it_was_given() -> None:
    population = simulated(1000, 200, favouring=0.7, decisive=0.5)
    assert [int((population.outcomes == value).sum()) for value in (1, -1, 0)] == [70, 30, 100]
    assert population.difference == pytest.approx(0.04)


def test_orders_keep_the_outcomes_and_draws_their_shares() -> None:
    population, generator = simulated(400, 100, 0.8), np.random.default_rng(0)
    assert (shuffled(population.outcomes, 5, generator).sum(axis=1) == 60).all()
    assert independent(population, 2000, 5, generator).mean() == pytest.approx(0.6, abs=0.05)


def test_the_z_test_that_is_looked_at_each_time_rejects_equal_models_far_too_often() -> None:
    streams = independent(simulated(400, 100, 0.5), 300, 500, np.random.default_rng(0))
    assert 0.2 < z_test_after_every_label(streams) < 0.6
    assert z_test_after_every_label(streams[:, :10]) < 0.12


def test_no_row_of_false_verdicts_exceeds_delta() -> None:
    rows = list(false_verdicts(300, np.random.default_rng(3)))
    assert len(rows) == 5
    assert all(float(row[1]) <= 5 for row in rows)


def test_random_images_take_more_labels_by_as_much_as_agreements_are_more_frequent() -> None:
    population, generator = simulated(1000, 200, 0.8), np.random.default_rng(0)
    labels = np.median(population.label(50, generator).labels)
    at_random = np.median(population.label_random_images(50, generator).labels)
    assert 3 < at_random / labels < 7


def test_the_command_writes_and_prints_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.certification import simulation

    monkeypatch.setattr(simulation, "false_verdicts", lambda orders, generator: iter([("equal", "3.1", "40.0")]))
    monkeypatch.setattr(simulation, "at_random_images", lambda orders, generator: iter([("5 %", "1", "2", "3", "4")]))
    assert main(["--streams", "5", "--out", str(tmp_path / "table.md")]) == 0
    text = (tmp_path / "table.md").read_text()
    assert capsys.readouterr().out == text
    headings = [line for line in TABLE.read_text().splitlines() if line.startswith(("#", "| M"))]
    assert [line for line in text.splitlines() if line.startswith(("#", "| M"))] == headings
