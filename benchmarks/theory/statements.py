"""Statements of the paper, each with a test of its own, and their verdicts as a page."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from torch import Generator

from benchmarks.tables import markdown

DRAWS = 100
"""Random problems of a test."""

TOLERANCE = 1e-9
Verdict = tuple[bool, dict[str, float]]
"""Whether a statement holds numerically, and what was measured."""

Test = Callable[[Generator], Verdict]
HEAD = """# The paper's theory, put to the test

Written by `python -m benchmarks.theory --seed {seed}`. Each statement is put to a test of its own, on random problems
of one seed or on the smallest example that decides it; `tests/benchmarks/test_theory.py`
repeats the verdicts with another seed.
"""


@dataclass(frozen=True)
class Statement:
    """What the paper prints or says.

    Attributes:
        test: draws random problems from the generator
        where: its place in the paper
        note: what the numbers mean; what holds instead, where the statement does not
        claimed: whether the paper says it; otherwise it is a reading that one might take from it
    """

    text: str
    test: Test
    where: str
    note: str
    claimed: bool


STATEMENTS: list[Statement] = []
PARTS = ("votes", "smoothing", "adaptation", "measures")
"""Modules of statements, in the order in which they draw from one generator."""


def statement(text: str, where: str, note: str, claimed: bool = True) -> Callable[[Test], Test]:
    """Add a statement with the decorated test."""

    def add(test: Test) -> Test:
        STATEMENTS.append(Statement(text, test, where, note, claimed))
        return test

    return add


def statements() -> list[Statement]:
    for part in PARTS:
        import_module(f"benchmarks.theory.{part}")
    return STATEMENTS


def page(seed: int) -> str:
    """What the paper says, and apart from it what it does not say."""
    generator = Generator().manual_seed(seed)
    verdicts = [(each, *each.test(generator)) for each in statements()]
    parts = [HEAD.format(seed=seed)]
    for title, claimed in (("What the paper says", True), ("What it does not say", False)):
        chosen = [verdict for verdict in verdicts if verdict[0].claimed is claimed]
        held = sum(holds for _, holds, _ in chosen)
        table = markdown(("statement", "where", "holds", "numbers", "note"), [_row(*verdict) for verdict in chosen])
        parts.append(f"## {title}: {held} of {len(chosen)} statements hold\n\n{table}")
    return "\n".join(parts)


def _row(each: Statement, holds: bool, numbers: dict[str, float]) -> list[str]:
    shown = ", ".join(f"{name} {_shown(value)}" for name, value in numbers.items())
    cells = (each.text, each.where, "yes" if holds else "**no**", shown, each.note)
    return [cell.replace("|", r"\|") for cell in cells]


def _shown(value: float) -> str:
    """Four digits; rounding errors, which differ between processors, are 0."""
    return f"{value:.4g}" if abs(value) > 1e-12 else "0"
