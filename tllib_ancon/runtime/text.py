"""Text from outside, such as names of files, classes and domains, made safe for each medium that shows it."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from typing import Any, TextIO

NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
"""Control characters, line ends, bidirectional and zero-width characters, bytes of a name that is not UTF-8."""

MARKDOWN_SPECIAL = re.compile(r"[\\`*|~]|\](?=[(\[:])|(?<!\w)_|_(?!\w)")
"""Characters of Markdown's syntax. An underscore within a word is none, nor a bracket that is no link's."""


LONGEST = 3000
"""Characters of one line in a terminal."""


class Shown:
    """What a notebook shows as the lines that ``print`` gives."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def showable(text: str) -> str:
    r"""One line of UTF-8, with codes such as ``\r``, ``\u202e`` and ``\udcff`` in place of :data:`NOT_SHOWN`."""
    return NOT_SHOWN.sub(lambda match: ascii(match[0])[1:-1], text)


def _terminal(text: object) -> str:
    """One line of a terminal, shortened in its middle to :data:`LONGEST` characters."""
    line = showable(str(text))
    half = LONGEST // 2
    if len(line) <= LONGEST:
        return line
    return f"{line[:half]} [{len(line) - LONGEST:,} characters are left out] {line[-half:]}"


def say(*lines: object, file: TextIO | None = None) -> None:
    """Print each of these on one line of a terminal; ``file`` is standard output by default."""
    print(*map(_terminal, lines), sep="\n", file=file, flush=True)


def counted(number: int, singular: str, plural: str = "") -> str:
    """``1 image``, ``2 images``"""
    if number == 1:
        return f"1 {singular}"
    return f"{number:,} {plural or singular + 's'}"


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first texts, and how many more there are."""
    shown = list(texts[:most])
    if len(texts) > most:
        shown.append(f"and {len(texts) - most:,} more")
    return separator.join(shown)


def html(value: Any) -> Any:
    """A value that jinja2 escapes then; its ``Markup`` stays."""
    if type(value) is str:
        return showable(value)
    return value


def markdown(text: str) -> str:
    return MARKDOWN_SPECIAL.sub(r"\\\g<0>", escape(showable(text), quote=False))


def cell(value: Any) -> Any:
    """A value of a CSV file; ``'`` precedes text that a spreadsheet would run as a formula."""
    if not isinstance(value, str):
        return value
    text = showable(value)
    with suppress(ValueError):
        float(text)
        return text
    if text.startswith(("=", "+", "-", "@")):
        return f"'{text}"
    return text


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows of a CSV file, one a line whatever their text holds."""
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(map(cell, row) for row in rows)
    return file.getvalue()
