"""The certificate: the tables of its page are printed, and a run has a row with the truth beside the verdicts."""

import shutil
from pathlib import Path

from benchmarks.certificate import simulation
from benchmarks.certificate.__main__ import main
from tests.support.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main as command

PAGE = Path(__file__).resolve().parents[2] / "benchmarks" / "certificate" / "README.md"


def test_the_command_prints_the_tables_of_the_page(capsys, monkeypatch):
    monkeypatch.setattr(simulation, "at_random_images", lambda orders, generator: [("5 %", "1", "2", "3", "4")])
    main(["--streams", "5"])
    shown = capsys.readouterr().out.splitlines()
    page = PAGE.read_text().splitlines()
    headings = [line for line in shown if line.startswith(("#", "| M", "| images", "| disagreements"))]
    assert len(headings) == 6
    assert [line for line in headings if line not in page] == []


def test_a_row_for_each_run_whose_models_differ(tmp_path, capsys):
    data = write_domains(tmp_path / "data")
    source = tmp_path / "source"
    out = tmp_path / "out"
    assert command(["pretrain", *small_arguments(data), "--epochs", "4", "--log", str(source)]) == 0
    start = ["-t", "dark", "--checkpoint", str(source), "--epochs", "2", "--lr", "0.3", "--method", "ancon"]
    for name in ("adapted", "unmoved"):
        assert command(["adapt", *small_arguments(data), *start, "--log", str(out / name)]) == 0
    shutil.copy(source / "checkpoints/best.pth", out / "unmoved/checkpoints")
    capsys.readouterr()
    main(["--runs", str(out), "--streams", "50"])
    header, _, *rows = capsys.readouterr().out.splitlines()
    lines = [line.strip("|").split("|") for line in (header, *rows)]
    names, *cells = [[cell.strip() for cell in line] for line in lines]
    (row,) = (dict(zip(names, values, strict=True)) for values in cells)
    assert row["run"] == "adapted"
    assert row["images"] == "48"
    difference, better, worse = (float(row[name]) for name in ("true difference, points", "better, %", "worse, %"))
    assert (worse if difference > 0 else better) <= 20
    assert abs(difference) <= 100 * int(row["disagreements"]) / 48
    assert float(row["times fewer"]) >= 1
