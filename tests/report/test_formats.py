from __future__ import annotations

import csv
import io

import pytest

from tllib_ancon.report.formats import cell_text, to_csv, to_latex, to_markdown
from tllib_ancon.report.tables import Cell, Line, Table


@pytest.fixture
def made() -> Table:
    lines = [
        Line("measured", "ancon", {"A_b": Cell(65.123, 0.4, 3, best=True), "C|d": Cell(50.0, None, 1)}),
        Line("published", "ancon", {"A_b": Cell(66.0)}, "Somebody, 2024"),
        Line("difference", "ancon", {"A_b": Cell(-0.877)}),
        Line("other", "shot", {"C|d": Cell(71.0)}, "Others & co, 100 %"),
    ]
    return Table("accuracy", "accuracy in %", ["A_b", "C|d"], lines, ["a note"])


@pytest.mark.parametrize(
    ("cell", "kind", "text"),
    [
        (Cell(65.123, 0.4, 3), "measured", "65.12 ± 0.40"),
        (Cell(65.123, 0.4, 2), "measured", "65.12 ± 0.40 †2"),
        (Cell(65.0, None, 1), "measured", "65.00 †1"),
        (Cell(66.0), "published", "66.00"),
        (Cell(-0.877), "difference", "−0.88"),
        (Cell(0.2), "difference", "+0.20"),
        (None, "measured", ""),
    ],
)
def test_a_cell(cell, kind: str, text: str) -> None:
    assert cell_text(cell, kind) == text


def test_markdown(made: Table) -> None:
    lines = to_markdown(made).splitlines()
    assert lines[0] == "### accuracy in %"
    assert lines[2] == "|  | A_b | C\\|d |"
    assert lines[4] == "| ancon | **65.12 ± 0.40** | 50.00 †1 |"
    assert lines[5] == "| ancon (paper) | 66.00 |  |"
    assert lines[6] == "| ancon (difference) | −0.88 |  |"
    assert lines[-2:] == ["- a note", "- shot (others): Others & co, 100 %"]


def test_csv(made: Table) -> None:
    rows = list(csv.reader(io.StringIO(to_csv(made))))
    assert rows[0] == ["row", "number", "A_b", "C|d", "source"]
    assert rows[1:4] == [
        ["ancon", "measured", "65.12", "50.00", ""],
        ["ancon", "std", "0.40", "", ""],
        ["ancon", "seeds", "3", "1", ""],
    ]
    assert rows[5] == ["ancon", "difference", "-0.88", "", ""]
    assert rows[6][-1] == "Others & co, 100 %"


def test_latex(made: Table) -> None:
    text = to_latex(made)
    assert r" & A\_b & C|d \\" in text
    assert r"ancon & \textbf{65.12 $\pm$ 0.40} & 50.00 $^\dagger$1 \\" in text
    assert r"ancon (difference) & $-$0.88 &  \\" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert "% shot (others): Others & co, 100 %" in text
