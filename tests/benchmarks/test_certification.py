import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.certification import simulation
from benchmarks.certification.__main__ import TABLE, main
from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main as command


def test_a_population_has_the_shares_it_was_given() -> None:
    population = simulation.simulated(1000, 200, favouring=0.7, decisive=0.5)
    assert [int((population.outcomes == value).sum()) for value in (1, -1, 0)] == [70, 30, 100]
    assert population.difference == pytest.approx(0.04)
    assert (population.shuffled(5, np.random.default_rng(0)).sum(axis=1) == 40).all()


def test_no_row_of_false_verdicts_exceeds_delta_but_those_of_the_z_test_do() -> None:
    *equal, at_margin = simulation.false_verdicts(300, np.random.default_rng(3))
    assert all(float(false) <= 5 and 20 < float(z_test) < 60 for _, false, z_test in equal)
    assert at_margin[0].startswith("better by exactly the margin of 1 point")
    assert float(at_margin[1]) <= 5


def test_the_command_writes_and_prints_the_page(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(simulation, "at_random_images", lambda orders, generator: [("5 %", "1", "2", "3", "4")])
    main(["--streams", "5", "--out", str(tmp_path / "table.md")])
    text = (tmp_path / "table.md").read_text()
    assert capsys.readouterr().out == text
    headings = [line for line in TABLE.read_text().splitlines() if line.startswith(("#", "| M", "| equal"))]
    shown = [line for line in text.splitlines() if line.startswith(("#", "| M", "| equal"))]
    assert [line.split(" | ")[0] for line in shown] == [line.split(" | ")[0] for line in headings]


def test_a_row_for_each_run_whose_models_differ(tmp_path: Path) -> None:
    data = write_domains(tmp_path / "data")
    source, out = tmp_path / "source", tmp_path / "out"
    assert command(["pretrain", *small_arguments(data), "--epochs", "4", "--log", str(source)]) == 0
    start = ["-t", "dark", "--checkpoint", str(source), "--epochs", "2", "--lr", "0.3", "--method", "ancon"]
    for name in ("adapted", "unmoved"):
        assert command(["adapt", *small_arguments(data), *start, "--log", str(out / name)]) == 0
    shutil.copy(source / "checkpoints/best.pth", out / "unmoved/checkpoints")
    main(["--runs", str(out), "--streams", "50", "--out", str(tmp_path / "table.md")])
    header, _, *rows = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("|")]
    names, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *rows)]
    (row,) = (dict(zip(names, values, strict=True)) for values in cells)
    assert (row["run"], row["images"]) == ("adapted", "48")
    difference, better, worse = (float(row[name]) for name in ("true difference, points", "better, %", "worse, %"))
    assert (worse if difference > 0 else better) <= 20
    assert abs(difference) <= 100 * int(row["disagreements"]) / 48
    assert float(row["times fewer"]) >= 1
