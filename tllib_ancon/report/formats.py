"""Tables as Markdown, CSV, LaTeX and HTML, and the page that holds a report: nothing in it is loaded from elsewhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from tllib_ancon.report.figures import Picture
from tllib_ancon.report.tables import PAPER_SEEDS, Cell, Table
from tllib_ancon.text import csv_text

KINDS = {"measured": "", "published": " (paper)", "difference": " (difference)", "other": " (others)"}
LATEX_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "−": "$-$", "†": r"$^\dagger$"}
)
MARKDOWN_SPECIAL = re.compile(r"[\\`*|~]|\](?=[(\[:])|(?<!\w)_|_(?!\w)")
"""Characters that Markdown takes for its own. An underscore within a word is none, nor a bracket that is no link's."""

SPACE = re.compile(r"\s+")


def to_markdown(table: Table) -> str:
    header, *rows = _rows(table, escaped, "**{}**")
    rows = [header, ["---", *("---:" for _ in table.columns)], *rows]
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(f"- {escaped(note)}" for note in table.notes)
    return f"### {escaped(table.title)}\n\n{body}\n\n{notes}\n"


def to_csv(table: Table) -> str:
    """A line for each mean, standard deviation and number of seeds, and for what others printed."""
    rows: list[list[Any]] = [["row", "number", *table.columns, "source"]]
    for line in table.lines:
        parts: dict[str, dict[str, Any]] = {line.kind: {}, "std": {}, "seeds": {}}
        for column, cell in line.cells.items():
            parts[line.kind][column] = f"{cell.mean:.{cell.decimals}f}"
            parts["std"][column] = "" if cell.deviation is None else f"{cell.deviation:.{cell.decimals}f}"
            parts["seeds"][column] = cell.seeds
        for number, values in parts.items():
            if number == line.kind or any(parts["seeds"].values()):
                rows.append([line.label, number, *map(values.get, table.columns), line.source])
    return csv_text(rows)


def to_latex(table: Table) -> str:
    table_rows = _rows(table, lambda text: SPACE.sub(" ", text).translate(LATEX_SPECIAL), r"\textbf{{{}}}")
    header, *rows = (" & ".join(row) + r" \\" for row in table_rows)
    comments = "".join(f"% {SPACE.sub(' ', note)}\n" for note in table.notes)
    begin = f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}"
    return comments + "\n".join([begin, r"\toprule", header, r"\midrule", *rows, r"\bottomrule", "\\end{tabular}\n"])


def markdown(title: str, remarks: Sequence[str], tables: Sequence[Table]) -> str:
    """The whole report; every text is escaped."""
    listed = "".join(f"- {escaped(remark)}\n" for remark in remarks)
    return f"## {escaped(title)}\n\n{listed}\n" + "\n".join(map(to_markdown, tables))


def page(title: str, remarks: Sequence[str], tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The whole report and its figures as one HTML page; every text is escaped."""
    content = "".join((_html_list(remarks), *map(_html_table, tables), *map(_html_figure, pictures)))
    template = Template(files(__package__).joinpath("page.html").read_text())
    return template.substitute(title=escape(title), content=content)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line, and that no HTML around it reads as its own."""
    return MARKDOWN_SPECIAL.sub(r"\\\g<0>", escape(SPACE.sub(" ", text), quote=False))


def _rows(table: Table, safe: Callable[[str], str], bold: str) -> list[list[str]]:
    """The header, then the texts of each line: what the first column says, and its numbers, the best in bold."""
    rows = [["", *map(safe, table.columns)]]
    for line in table.lines:
        texts = {column: safe(_cell_text(cell, line.kind)) for column, cell in line.cells.items()}
        texts |= {column: bold.format(texts[column]) for column, cell in line.cells.items() if cell.best}
        rows.append([safe(line.label + KINDS[line.kind]), *(texts.get(column, "") for column in table.columns)])
    return rows


def _cell_text(cell: Cell, kind: str) -> str:
    """``65.10 ± 0.40``, with ``†2`` where seeds are fewer than the paper's; a difference has its sign."""
    if kind == "difference":
        return f"{cell.mean:+.{cell.decimals}f}".replace("-", "−")
    text = f"{cell.mean:.{cell.decimals}f}"
    text += f" ± {cell.deviation:.{cell.decimals}f}" if cell.deviation is not None else ""
    return f"{text} †{cell.seeds}" if cell.seeds is not None and cell.seeds < PAPER_SEEDS else text


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
        f"{_html_list(table.notes)}</section>\n"
    )


def _html_figure(picture: Picture) -> str:
    data, text = base64.b64encode(picture.png).decode(), escape(picture.title)
    image = f'<img src="data:image/png;base64,{data}" alt="{text}">'
    return f"<figure>\n{image}\n<figcaption>{text}</figcaption>\n</figure>\n"


def _html_list(texts: Sequence[str]) -> str:
    return "<ul>\n" + "".join(f"<li>{escape(text)}</li>\n" for text in texts) + "</ul>\n" if texts else ""
