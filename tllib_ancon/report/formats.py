"""A table as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io

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


def heading(line: Line) -> str:
    """What the first column says."""
    kind = KINDS[line.kind]
    return line.label if not kind else f"{line.label} ({kind})"


def cell_text(cell: Cell | None, kind: str) -> str:
    """``65.10 ± 0.40``, with ``†2`` where seeds are fewer than the paper's; a difference has its sign."""
    if cell is None:
        return ""
    if kind == "difference":
        return f"{cell.mean:+.2f}".replace("-", "−")
    text = f"{cell.mean:.2f}" + (f" ± {cell.deviation:.2f}" if cell.deviation is not None else "")
    few = cell.seeds is not None and cell.seeds < PAPER_SEEDS
    return f"{text} †{cell.seeds}" if few else text


def all_notes(table: Table) -> list[str]:
    """The table's notes and where others printed their rows."""
    by_source: dict[str, list[str]] = {}
    for line in table.lines:
        if line.kind == "other":
            by_source.setdefault(line.source, []).append(line.label)
    return [*table.notes, *(f"{', '.join(labels)} (others): {source}" for source, labels in by_source.items())]


def to_markdown(table: Table) -> str:
    def escape(text: str) -> str:
        return text.replace("|", "\\|")

    rows = [["", *table.columns], ["---", *("---:" for _ in table.columns)]]
    for line in table.lines:
        texts = [(cell_text(cell, line.kind), cell) for cell in _cells(line, table)]
        rows.append([heading(line), *(f"**{text}**" if cell and cell.best else text for text, cell in texts)])
    body = "\n".join("| " + " | ".join(map(escape, row)) + " |" for row in rows)
    notes = "\n".join(f"- {note}" for note in all_notes(table))
    return f"### {table.title}\n\n{body}\n\n{notes}\n"


def to_csv(table: Table) -> str:
    """A line for each mean, standard deviation and number of seeds, and for what others printed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["row", "number", *table.columns, "source"])
    for line in table.lines:
        cells = _cells(line, table)
        numbers = {line.kind: [f"{cell.mean:.2f}" if cell else "" for cell in cells]}
        if any(cell is not None and cell.seeds is not None for cell in cells):
            numbers["std"] = [f"{cell.deviation:.2f}" if cell and cell.deviation is not None else "" for cell in cells]
            numbers["seeds"] = [str(cell.seeds) if cell and cell.seeds is not None else "" for cell in cells]
        for kind, texts in numbers.items():
            writer.writerow([line.label, kind, *texts, line.source])
    return file.getvalue()


def to_latex(table: Table) -> str:
    rows = []
    for line in table.lines:
        texts = [(_latex(cell_text(cell, line.kind)), cell) for cell in _cells(line, table)]
        marked = [f"\\textbf{{{text}}}" if cell and cell.best else text for text, cell in texts]
        rows.append(" & ".join([_latex(heading(line)), *marked]) + r" \\")
    header = " & ".join(["", *map(_latex, table.columns)]) + r" \\"
    comments = "\n".join(f"% {note}" for note in all_notes(table))
    body = "\n".join(rows)
    return (
        f"{comments}\n\\begin{{tabular}}{{l{'r' * len(table.columns)}}}\n\\toprule\n{header}\n\\midrule\n{body}\n"
        f"\\bottomrule\n\\end{{tabular}}\n"
    )


def _cells(line: Line, table: Table) -> list[Cell | None]:
    return [line.cells.get(column) for column in table.columns]


def _latex(text: str) -> str:
    return "".join(LATEX_SPECIAL.get(character, character) for character in text)
