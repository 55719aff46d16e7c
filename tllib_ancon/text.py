"""Text from outside, such as names of files and classes, made fit to be shown and to stand in a table."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, ends of lines, and what Python has for the bytes of a name that is not UTF-8."""


class Shown:
    """What a notebook shows as the lines that ``print`` gives."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def showable(text: str) -> str:
    r"""The same text in one line of UTF-8, with codes such as ``\r`` and ``\udcff`` for what cannot be shown."""
    return NOT_SHOWN.sub(lambda found: repr(found[0])[1:-1], text)


def cell(value: Any) -> Any:
    """What stands for a value in a CSV file: text that a spreadsheet would run as a formula begins with ``'``."""
    if not isinstance(value, str):
        return value
    text = showable(value)
    with suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows of a CSV file, one a line whatever their text holds."""
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows(map(cell, row) for row in rows)
    return file.getvalue()
