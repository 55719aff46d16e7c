"""Whether two runs are the same bit for bit: ``python -m benchmarks.gpu.compare RUN OTHER``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

CHECKPOINTS = ("best.pth", "latest.pth")
CLOCKS = ("images_per_second", "seconds")
"""What a repetition measures anew."""


def main(words: Sequence[str] | None = None) -> int:
    first, second = map(Path, sys.argv[1:] if words is None else words)
    found = list(differences(first, second))
    print("\n".join(found) or f"{first} and {second} are the same bit for bit")
    return 1 if found else 0


def differences(first: Path, second: Path) -> list[str]:
    """One text for each epoch and each tensor that is not the same in both."""
    found = []
    for name in CHECKPOINTS:
        ours, theirs = (_tensors(run / "checkpoints" / name) for run in (first, second))
        found += [f"{name}: {key}" for key in sorted({*ours, *theirs}) if not _same(ours.get(key), theirs.get(key))]
    epochs = [_metrics(run) for run in (first, second)]
    if len(epochs[0]) != len(epochs[1]):
        found.append(f"{len(epochs[0])} and {len(epochs[1])} epochs")
    return found + [f"epoch {number}" for number, pair in enumerate(zip(*epochs, strict=False)) if pair[0] != pair[1]]


def _tensors(path: Path) -> dict[str, Any]:
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _same(first: Any, second: Any) -> bool:
    if not (isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)):
        return bool(first == second)
    return first.dtype == second.dtype and torch.equal(_bits(first), _bits(second))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as integers, so that NaN equals itself and 0 differs from −0."""
    return tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor


def _metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines]


if __name__ == "__main__":
    sys.exit(main())
