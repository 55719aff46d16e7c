"""Records of faults -> a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
HEAD = "| command | {} | ended before | wrong exit | not continued | differing bits | processes left |\n"
LINE = "|---|---:|---:|---:|---:|---:|---:|\n"
TITLES = {"kill": "Kills", "disk": "A full disk", "hostile": "Hostile files"}
COUNTED = {"kill": "kills", "disk": "sizes", "hostile": "files"}


def markdown(records: Sequence[Record]) -> str:
    """A table for each kind of fault, a row a command, and a line on each fault that was not borne."""
    kinds = [kind for kind in TITLES if any(record["kind"] == kind for record in records)]
    parts = [_table(kind, [record for record in records if record["kind"] == kind]) for kind in kinds]
    wrong = [record for record in records if is_wrong(record)]
    listed = "\n".join(f"- {_said(record)}" for record in wrong)
    return "\n".join(parts) + (f"\n## What went wrong\n\n{listed}\n" if wrong else "")


def is_wrong(record: Record) -> bool:
    return bool(record["wrong_exit"] or record.get("continued") or record.get("differing") or record["left"])


def _table(kind: str, records: Sequence[Record]) -> str:
    names = sorted({record["command"] for record in records})
    rows = [_row(name, [record for record in records if record["command"] == name]) for name in names]
    head = f"## {TITLES[kind]}\n\n" + HEAD.format(COUNTED[kind]) + LINE
    return head + "".join([*rows, _row("all", records)])


def _row(name: str, records: Sequence[Record]) -> str:
    counts = [
        len(records),
        sum(record["finished"] for record in records),
        sum(bool(record["wrong_exit"]) for record in records),
        sum(bool(record.get("continued")) for record in records),
        sum(bool(record.get("differing")) for record in records),
        sum(record["left"] for record in records),
    ]
    return f"| {name} | " + " | ".join(map(str, counts)) + " |\n"


def _said(record: Record) -> str:
    fault = ", ".join(
        f"{name} {record[name]}" for name in ("signal", "group", "after", "size", "damage") if name in record
    )
    happened = [
        record["wrong_exit"],
        record.get("errors"),
        ", ".join(record.get("differing", [])),
        "a process was left" if record["left"] else "",
    ]
    text = " ".join("; ".join(filter(None, happened)).split())[-300:]
    return f"{record['command']} ({fault}): {text}"
