"""One statement put to the test, and all of them as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DRAWS = 100
"""Random problems of a test."""

TOLERANCE = 1e-9
HEAD = """
Written by `python -m benchmarks.theory --seed {seed}`. Each statement is put to a test of its own, on random problems
of one seed or on the smallest example that decides it; `tests/benchmarks/theory` repeats the verdicts with other seeds.
"""
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
        claimed: whether the paper says it; otherwise it is a reading of ours that one might take from it.
    """

    statement: str
    where: str
    holds: bool
    numbers: dict[str, float]
    note: str
    claimed: bool = True


def findings_table(results: Sequence[Finding]) -> str:
    """The findings as a Markdown table."""
    lines = ["| statement | where | holds | numbers | note |", "|---|---|---|---|---|"]
    for result in results:
        numbers = ", ".join(f"{name} {_shown(value)}" for name, value in result.numbers.items())
        cells = (result.statement, result.where, "yes" if result.holds else "**no**", numbers, result.note)
        lines.append(f"| {' | '.join(cell.translate(MARKDOWN_CELL) for cell in cells)} |")
    return "\n".join(lines)


def _shown(value: float) -> str:
    """Four digits; rounding errors, which differ between processors, are 0."""
    return f"{value:.4g}" if abs(value) > 1e-12 else "0"


def page(results: Sequence[Finding], seed: int) -> str:
    """A Markdown page: what the paper says, and apart from it what it does not say."""
    parts = ["# The paper's theory, put to the test\n", HEAD.format(seed=seed)]
    for title, claimed in (("What the paper says", True), ("What it does not say", False)):
        chosen = [result for result in results if result.claimed is claimed]
        held = sum(result.holds for result in chosen)
        parts.append(f"\n## {title}: {held} of {len(chosen)} statements hold\n\n{findings_table(chosen)}\n")
    return "".join(parts)
