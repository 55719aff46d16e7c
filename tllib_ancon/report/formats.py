"""Tables as Markdown, CSV, LaTeX and HTML, and the page that holds a report: nothing in it is loaded from elsewhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from html import escape

from tllib_ancon.report.figures import Picture
from tllib_ancon.report.tables import PAPER_SEEDS, Cell, Table
from tllib_ancon.text import csv_text

KINDS = {"measured": "", "published": " (paper)", "difference": " (difference)", "other": " (others)"}
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "†": r"$^\dagger$",
}
MARKDOWN_SPECIAL = re.compile(r"[\\`*|~]|\](?=[(\[:])|(?<!\w)_|_(?!\w)")
"""Characters that Markdown takes for its own. An underscore within a word is none, nor a bracket that is no link's."""

SPACE = re.compile(r"\s+")
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


def cell_text(cell: Cell | None, kind: str, decimals: int = 2) -> str:
    """``65.10 ± 0.40``, with ``†2`` where seeds are fewer than the paper's; a difference has its sign."""
    if cell is None:
        return ""
    decimals = decimals if cell.decimals is None else cell.decimals
    if kind == "difference":
        return f"{cell.mean:+.{decimals}f}".replace("-", "−")
    text = f"{cell.mean:.{decimals}f}" + (f" ± {cell.deviation:.{decimals}f}" if cell.deviation is not None else "")
    return f"{text} †{cell.seeds}" if cell.seeds is not None and cell.seeds < PAPER_SEEDS else text


def to_markdown(table: Table) -> str:
    header, *rows = _rows(table, escaped, "**{}**")
    body = "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---", *("---:" for _ in table.columns)], *rows])
    notes = "\n".join(f"- {escaped(note)}" for note in _notes(table))
    return f"### {escaped(table.title)}\n\n{body}\n\n{notes}\n"


def to_csv(table: Table) -> str:
    """A line for each mean, standard deviation and number of seeds, and for what others printed."""
    rows = [["row", "number", *table.columns, "source"]]
    for line in table.lines:
        cells = [line.cells.get(column) for column in table.columns]
        numbers = {line.kind: [cell and Cell(cell.mean, decimals=cell.decimals) for cell in cells]}
        if any(cell and cell.seeds is not None for cell in cells):
            deviations = [None if cell is None else cell.deviation for cell in cells]
            numbers["std"] = [None if value is None else Cell(value) for value in deviations]
            numbers["seeds"] = [Cell(cell.seeds, decimals=0) if cell and cell.seeds else None for cell in cells]
        for kind, own in numbers.items():
            rows.append([line.label, kind, *(cell_text(cell, "", table.decimals) for cell in own), line.source])
    return csv_text(rows)


def to_latex(table: Table) -> str:
    header, *rows = (" & ".join(row) + r" \\" for row in _rows(table, _latex, r"\textbf{{{}}}"))
    comments = "".join(f"% {SPACE.sub(' ', note)}\n" for note in _notes(table))
    begin = f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}"
    return comments + "\n".join([begin, r"\toprule", header, r"\midrule", *rows, r"\bottomrule", "\\end{tabular}\n"])


def markdown(title: str, remarks: Sequence[str], tables: Sequence[Table]) -> str:
    """The whole report; every text is escaped."""
    listed = "".join(f"- {escaped(remark)}\n" for remark in remarks)
    return f"## {escaped(title)}\n\n{listed}\n" + "\n".join(map(to_markdown, tables))


def page(title: str, remarks: Sequence[str], tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The same and the figures as one HTML page; every text is escaped."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        + "".join((_html_list(remarks), *map(_html_table, tables), *map(_html_figure, pictures)))
        + "</body>\n</html>\n"
    )


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line, and that no HTML around it reads as its own."""
    return MARKDOWN_SPECIAL.sub(r"\\\g<0>", escape(SPACE.sub(" ", text), quote=False))


def _latex(text: str) -> str:
    return "".join(LATEX_SPECIAL.get(character, character) for character in SPACE.sub(" ", text))


def _rows(table: Table, safe: Callable[[str], str], bold: str) -> list[list[str]]:
    """The header, then the texts of each line: what the first column says, and its numbers, the best in bold."""
    rows = [["", *map(safe, table.columns)]]
    for line in table.lines:
        cells = [line.cells.get(column) for column in table.columns]
        texts = [safe(cell_text(cell, line.kind, table.decimals)) for cell in cells]
        best = [bold.format(text) if cell and cell.best else text for cell, text in zip(cells, texts, strict=True)]
        rows.append([safe(line.label + KINDS[line.kind]), *best])
    return rows


def _notes(table: Table) -> list[str]:
    """The table's notes and where others printed their rows."""
    by_source: dict[str, list[str]] = {}
    for line in table.lines:
        if line.kind == "other":
            by_source.setdefault(line.source, []).append(line.label)
    return [*table.notes, *(f"{', '.join(labels)} (others): {source}" for source, labels in by_source.items())]


def _html_table(table: Table) -> str:
    (_, *header), *rows = _rows(table, escape, "<b>{}</b>")
    columns = "".join(f'<th scope="col">{text}</th>' for text in header)
    body = "".join(
        f'<tr class="{line.kind}"><th scope="row">{name}</th>{"".join(f"<td>{text}</td>" for text in texts)}</tr>\n'
        for line, (name, *texts) in zip(table.lines, rows, strict=True)
    )
    return (
        f'<section>\n<h2>{escape(table.title[:1].upper() + table.title[1:])}</h2>\n<div class="wide">\n<table>\n'
        f"<thead><tr><th></th>{columns}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n"
        f"{_html_list(_notes(table))}</section>\n"
    )


def _html_figure(picture: Picture) -> str:
    data, text = base64.b64encode(picture.png).decode(), escape(picture.title)
    image = f'<img src="data:image/png;base64,{data}" alt="{text}">'
    return f"<figure>\n{image}\n<figcaption>{text}</figcaption>\n</figure>\n"


def _html_list(texts: Sequence[str]) -> str:
    return "<ul>\n" + "".join(f"<li>{escape(text)}</li>\n" for text in texts) + "</ul>\n" if texts else ""
