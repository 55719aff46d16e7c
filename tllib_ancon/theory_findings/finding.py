"""One statement put to the test, and how many look as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DRAWS = 100
"""Random problems of a test."""

TOLERANCE = 1e-9
MARKDOWN_CELL = str.maketrans({"|": r"\|"})


@dataclass(frozen=True)
class Finding:
    """One statement of the paper put to the test.

    Args:
        statement: what the paper prints or says.
        where: its place in the paper.
        holds: whether it holds numerically.
        numbers: what was measured, by name.
        note: what the numbers mean; what holds instead, where the statement does not.
    """

    statement: str
    where: str
    holds: bool
    numbers: dict[str, float]
    note: str


def findings_table(results: Sequence[Finding]) -> str:
    """The findings as a Markdown table."""
    lines = ["| statement | where | holds | numbers | note |", "|---|---|---|---|---|"]
    for result in results:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in result.numbers.items())
        cells = (result.statement, result.where, "yes" if result.holds else "**no**", numbers, result.note)
        lines.append(f"| {' | '.join(cell.translate(MARKDOWN_CELL) for cell in cells)} |")
    return "\n".join(lines)
