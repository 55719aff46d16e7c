"""What ``run.sh`` has made so far, as Markdown: ``python -m benchmarks.gpu.summary OUT``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.__main__ import HEADER, line
from benchmarks.speed.timing import Row


def main(words: Sequence[str] | None = None) -> int:
    (folder,) = map(Path, sys.argv[1:] if words is None else words)
    print("\n".join([_machine(), "", *_steps(folder), "", *_speed(folder), "", *_short_runs(folder)]))
    return 0


def _machine() -> str:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{device}, torch {torch.__version__}"


def _steps(folder: Path) -> list[str]:
    """A row a step that ended; of one that failed also the last line of its log."""
    lines = ["| step | |", "|---|---|"]
    for path in sorted((folder / "ended").iterdir(), key=lambda path: path.stat().st_mtime):
        status = path.read_text().strip()
        outcome = "done" if status == "0" else f"**failed** ({status}): {_last_line(folder, path.name)}"
        lines.append(f"| {path.name} | {outcome} |")
    return lines


def _last_line(folder: Path, step: str) -> str:
    lines = (folder / "logs" / f"{step}.txt").read_text(errors="replace").split("\n")
    return next((text.strip().replace("|", r"\|") for text in reversed(lines) if text.strip()), "")


def _speed(folder: Path) -> list[str]:
    lines = ["```", HEADER]
    for path in sorted((folder / "speed").glob("*/speed.json")):
        for rows in json.loads(path.read_text())["figures"].values():
            lines += [line(_row(row)) for row in rows]
    return [*lines, "```"]


def _row(content: dict[str, Any]) -> Row:
    del content["met"]
    interval = content.pop("interval")
    return Row(**content, interval=interval and tuple(interval))


def _short_runs(folder: Path) -> list[str]:
    lines = ["| short run | accuracy at the start | of the last epoch | images/s of it |", "|---|---:|---:|---:|"]
    for path in sorted((folder / "short").glob("*/metrics.jsonl")):
        epochs = [json.loads(text) for text in path.read_text().splitlines()]
        numbers = (epochs[0].get("accuracy"), epochs[-1].get("accuracy"), epochs[-1].get("images_per_second"))
        cells = ["–" if number is None else f"{number:.2f}" for number in numbers]
        lines.append(f"| {path.parent.name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
