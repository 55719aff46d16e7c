"""Tables in Markdown, which every benchmark writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = False) -> str:
    """A table, its end of line included.

    Args:
        numbers: all columns but the first are set to the right
    """
    rule = "|---|" + ("---:|" if numbers else "---|") * (len(header) - 1)
    first, *others = (f"| {' | '.join(map(str, row))} |\n" for row in (header, *rows))
    return "".join([first, rule + "\n", *others])
