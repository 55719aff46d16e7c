"""A table as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from tllib_ancon.report.tables import PAPER_SEEDS, Cell, Line, Table

KINDS = {"measured": "", "published": "paper", "difference": "difference", "other": "others"}
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


def heading(line: Line) -> str:
    """What the first column says."""
    kind = KINDS[line.kind]
    return line.label if not kind else f"{line.label} ({kind})"


def cell_text(cell: Cell | None, kind: str, decimals: int = 2) -> str:
    """``65.10 ± 0.40``, with ``†2`` where seeds are fewer than the paper's; a difference has its sign."""
    if cell is None:
        return ""
    decimals = _digits(cell, decimals)
    if kind == "difference":
        return f"{cell.mean:+.{decimals}f}".replace("-", "−")
    text = f"{cell.mean:.{decimals}f}" + (f" ± {cell.deviation:.{decimals}f}" if cell.deviation is not None else "")
    few = cell.seeds is not None and cell.seeds < PAPER_SEEDS
    return f"{text} †{cell.seeds}" if few else text


def all_notes(table: Table) -> list[str]:
    """The table's notes and where others printed their rows."""
    by_source: dict[str, list[str]] = {}
    for line in table.lines:
        if line.kind == "other":
            by_source.setdefault(line.source, []).append(line.label)
    return [*table.notes, *(f"{', '.join(labels)} (others): {source}" for source, labels in by_source.items())]


def markdown(title: str, remarks: Sequence[str], tables: Sequence[Table]) -> str:
    """The whole report; every text is escaped."""
    listed = "".join(f"- {escaped(remark)}\n" for remark in remarks)
    return f"## {escaped(title)}\n\n{listed}\n" + "\n".join(map(to_markdown, tables))


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line, and that no HTML around it reads as its own."""
    text = SPACE.sub(" ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return MARKDOWN_SPECIAL.sub(r"\\\g<0>", text)


def to_markdown(table: Table) -> str:
    rows = [["", *map(escaped, table.columns)], ["---", *("---:" for _ in table.columns)]]
    for line in table.lines:
        texts = [(cell_text(cell, line.kind, table.decimals), cell) for cell in _cells(line, table)]
        rows.append([escaped(heading(line)), *(f"**{text}**" if cell and cell.best else text for text, cell in texts)])
    body = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    notes = "\n".join(f"- {escaped(note)}" for note in all_notes(table))
    return f"### {escaped(table.title)}\n\n{body}\n\n{notes}\n"


def to_csv(table: Table) -> str:
    """A line for each mean, standard deviation and number of seeds, and for what others printed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["row", "number", *table.columns, "source"])
    for line in table.lines:
        cells = _cells(line, table)
        deviations = [cell.deviation if cell else None for cell in cells]
        numbers = {line.kind: [_mean(cell, table.decimals) for cell in cells]}
        if any(cell is not None and cell.seeds is not None for cell in cells):
            numbers["std"] = [
                "" if deviation is None else f"{deviation:.{table.decimals}f}" for deviation in deviations
            ]
            numbers["seeds"] = [str(cell.seeds) if cell and cell.seeds is not None else "" for cell in cells]
        for kind, texts in numbers.items():
            writer.writerow([line.label, kind, *texts, line.source])
    return file.getvalue()


def to_latex(table: Table) -> str:
    rows = []
    for line in table.lines:
        texts = [(_latex(cell_text(cell, line.kind, table.decimals)), cell) for cell in _cells(line, table)]
        marked = [f"\\textbf{{{text}}}" if cell and cell.best else text for text, cell in texts]
        rows.append(" & ".join([_latex(heading(line)), *marked]) + r" \\")
    header = " & ".join(["", *map(_latex, table.columns)]) + r" \\"
    comments = "\n".join(f"% {SPACE.sub(' ', note)}" for note in all_notes(table))
    body = "\n".join(rows)
    return (
        f"{comments}\n\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n{header}\n\\midrule\n{body}\n"
        f"\\bottomrule\n\\end{{tabular}}\n"
    )


def _mean(cell: Cell | None, decimals: int) -> str:
    return "" if cell is None else f"{cell.mean:.{_digits(cell, decimals)}f}"


def _digits(cell: Cell, of_the_table: int) -> int:
    return of_the_table if cell.decimals is None else cell.decimals


def _cells(line: Line, table: Table) -> list[Cell | None]:
    return [line.cells.get(column) for column in table.columns]


def _latex(text: str) -> str:
    return "".join(LATEX_SPECIAL.get(character, character) for character in SPACE.sub(" ", text))
