"""One self-contained HTML page: tables and figures, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from tllib_ancon.report.canvas import Picture
from tllib_ancon.report.formats import all_notes, cell_text, heading
from tllib_ancon.report.tables import Line, Table

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 70rem; }
h1 { font-size: 1.4rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h1, h2, li, figcaption { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: Canvas; }
tbody th { font-weight: normal; } tr.measured th { font-weight: 600; }
tr.published, tr.difference, tr.other { color: GrayText; } tr.measured { background: var(--soft); }
ul { padding-left: 1.2rem; font-size: .9rem; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; background: white; }
figcaption { font-size: .9rem; }
"""


def page(title: str, remarks: Sequence[str], tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The page; every text is escaped.

    Args:
        title: of the page
        remarks: how the runs were made, and what deviates from the paper
        tables, pictures: in order
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        + _list(remarks)
        + "".join(map(_table, tables))
        + "".join(map(_figure, pictures))
        + "</body>\n</html>\n"
    )


def _table(table: Table) -> str:
    header = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(_row(line, table) for line in table.lines)
    return (
        f'<section>\n<h2>{escape(table.title[:1].upper() + table.title[1:])}</h2>\n<div class="wide">\n<table>\n'
        f"<thead><tr><th></th>{header}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
        f"{_list(all_notes(table))}</section>\n"
    )


def _row(line: Line, table: Table) -> str:
    cells = []
    for cell in (line.cells.get(column) for column in table.columns):
        text = escape(cell_text(cell, line.kind, table.decimals))
        cells.append(f"<td><b>{text}</b></td>" if cell is not None and cell.best else f"<td>{text}</td>")
    return f'<tr class="{escape(line.kind)}"><th scope="row">{escape(heading(line))}</th>{"".join(cells)}</tr>\n'


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    text = escape(picture.title)
    return (
        f'<figure>\n<img src="data:image/png;base64,{data}" alt="{text}">\n<figcaption>{text}</figcaption>\n</figure>\n'
    )


def _list(texts: Sequence[str]) -> str:
    return "<ul>\n" + "".join(f"<li>{escape(text)}</li>\n" for text in texts) + "</ul>\n" if texts else ""
