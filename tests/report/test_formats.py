from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from tllib_ancon.report.formats import cell_text, escaped, markdown, to_csv, to_latex, to_markdown
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
    assert lines[-2:] == ["- a note", "- shot (others): Others &amp; co, 100 %"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A_b", "A_b"),
        ("_a_ *b* `c` d|e ~~f~~", r"\_a\_ \*b\* \`c\` d\|e \~\~f\~\~"),
        ("<script>alert(1)</script> & so", "&lt;script&gt;alert(1)&lt;/script&gt; &amp; so"),
        ("![x](https://evil)", r"![x\](https://evil)"),
        ("bins over [0, 1]", "bins over [0, 1]"),
        ("one\n# two\r\n| three", r"one # two \| three"),
    ],
)
def test_what_markdown_would_take_for_its_own_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_every_text_of_a_report_is_escaped() -> None:
    hostile = "a|b\n<img src=x>"
    table = Table("t", hostile, [hostile], [Line("other", hostile, {hostile: Cell(1.0)}, hostile)], [hostile])
    text = markdown(hostile, [hostile], [table])
    assert "<img" not in text
    assert text.count(r"a\|b &lt;img src=x&gt;") == 8


def test_the_decimals_are_the_tables(made: Table) -> None:
    four = replace(made, decimals=4)
    assert "65.1230 ± 0.4000" in to_markdown(four)
    assert "65.1230" in to_csv(four)
    assert r"65.1230 $\pm$ 0.4000" in to_latex(four)


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
