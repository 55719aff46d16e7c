"""Records of faults -> tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.tables import markdown

Record = Mapping[str, Any]
KINDS = {"kill": ("Kills", "kills"), "disk": ("A full disk", "sizes"), "hostile": ("Hostile files", "files")}
"""Title of each kind's table, and what its records count."""

COLUMNS = {
    "ended before": "finished",
    "signal without effect": "no_effect",
    "wrong exit": "wrong_exit",
    "not continued": "continued",
    "differing bits": "differing",
    "processes left": "left",
}
FAULT = ("signal", "group", "after", "write", "size", "damage")


def page(records: Sequence[Record]) -> str:
    """A table for each kind of fault, a row a command; the planted bugs; a line on each fault that was not borne."""
    parts = []
    for kind, (title, count) in KINDS.items():
        chosen = [record for record in records if record["kind"] == kind]
        rows = [_row(name, chosen) for name in sorted({record["command"] for record in chosen})]
        if rows:
            table = markdown(("command", count, *COLUMNS), [*rows, _row("all", chosen)], numbers=True)
            parts.append(f"## {title}\n\n{table}")
    if planted := [record for record in records if record["kind"] == "planted"]:
        rows = [(record["command"], record["kills"], record["found"] or "**never**") for record in planted]
        parts.append("## Planted bugs\n\n" + markdown(("bug", "kills until it was found", "found as"), rows))
    if wrong := [f"- {said(record)}\n" for record in records if is_wrong(record) and record not in planted]:
        parts.append("## What went wrong\n\n" + "".join(wrong))
    return "\n".join(parts)


def is_wrong(record: Record) -> bool:
    """Whether a fault was not borne; of a planted bug: whether no kill found it. A signal may come too late to act."""
    if record["kind"] == "planted":
        return not record["found"]
    return any(record.get(name) for name in COLUMNS.values() if name not in ("finished", "no_effect"))


def said(record: Record) -> str:
    """One line of what happened."""
    fault = ", ".join(f"{name} {record[name]}" for name in FAULT if record.get(name))
    differing = sorted(record.get("differing", []))
    more = f" and {len(differing) - 2} more" * (len(differing) > 2)
    left = "a process was left" if record["left"] else ""
    happened = (record["wrong_exit"], record.get("errors"), ", ".join(differing[:2]) + more, left)
    return f"{record['command']} ({fault}): {' '.join('; '.join(filter(None, happened)).split())[-300:]}"


def _row(name: str, records: Sequence[Record]) -> list[object]:
    own = [record for record in records if name in (record["command"], "all")]
    return [name, len(own), *(sum(bool(record.get(column)) for record in own) for column in COLUMNS.values())]
