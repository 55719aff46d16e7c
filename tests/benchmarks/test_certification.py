import shutil
from pathlib import Path

from benchmarks.certification import simulation
from benchmarks.certification.__main__ import TABLE, main
from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main as command


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
