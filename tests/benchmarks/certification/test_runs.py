from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.certification.__main__ import main
from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main as command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two adaptations of one start; the second one's model is the start."""
    root = tmp_path_factory.mktemp("runs")
    data = write_domains(root / "data")
    assert command(["pretrain", *small_arguments(data), "--epochs", "6", "--log", str(root / "source")]) == 0
    start = ["-t", "dark", "--checkpoint", str(root / "source"), "--epochs", "3"]
    for name in ("adapted", "unmoved"):
        assert command(["adapt", *small_arguments(data), *start, "--lr", "0.3", "--log", str(root / "out" / name)]) == 0
    shutil.copy(root / "source" / "checkpoints" / "best.pth", root / "out" / "unmoved" / "checkpoints")
    return root


def test_a_row_for_each_run_whose_models_differ(folder: Path, tmp_path: Path) -> None:
    assert main(["--runs", str(folder / "out"), "--streams", "50", "--out", str(tmp_path / "table.md")]) == 0
    header, _, *rows = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in header.strip("|").split("|")]
    cells = [dict(zip(names, (cell.strip() for cell in row.strip("|").split("|")), strict=True)) for row in rows]
    assert [row["run"] for row in cells] == ["adapted"]
    for row in cells:
        assert row["images"] == "48"
        difference, better, worse = (float(row[name]) for name in ("true difference, points", "better, %", "worse, %"))
        assert (worse if difference > 0 else better) <= 20
        assert abs(difference) <= 100 * int(row["disagreements"]) / 48
        assert float(row["times fewer"]) >= 1


def test_a_folder_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"certification: error: no finished adaptation below {tmp_path}\n"
