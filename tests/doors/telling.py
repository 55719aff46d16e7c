"""What files, values and texts are told as, and when two tellings are the same."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import torch

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
VOLATILE = re.compile(
    r"[0-9a-f]{64}|(?<=images_per_second = )\S+|(?<=seconds = )\S+|(?<=versions\.)(\w+) = .*|torch \S+ on \S+"
)
TOLERANCE = 3e-3
"""Relative: the last bits of a number depend on the processor and on PyTorch's version, and training enlarges them."""


def values(value: Any, name: str = "", exact: bool = False) -> Iterator[str]:
    """``name.key[2] = value`` for every value of nested dicts and lists, in the order of the names; of a run's metrics
    all on one line."""
    if isinstance(value, dict) and "epoch" in value and name:
        yield f"{name}: {' '.join(values(value, exact=exact))}"
    elif isinstance(value, dict) and value:
        for key in sorted(value):
            yield from values(value[key], f"{name}.{key}" if name else str(key), exact)
    elif isinstance(value, list | tuple) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from values(item, f"{name}[{number}]", exact)
    else:
        yield f"{name} = {shown(value, exact)}"


def shown(value: Any, exact: bool = False) -> str:
    if isinstance(value, torch.Tensor | np.ndarray):
        array = np.asarray(value)
        if array.dtype.kind not in "fiu":
            return f"{array.dtype.kind} {array.shape} {array.ravel()[:2].tolist()}"
        content = hashlib.sha256(array.tobytes()).hexdigest()[:12] if exact else _norm(array)
        return f"{array.dtype} {array.shape} {content}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(item, exact) for item in value)}]"
    return f"{value:#.6g}" if isinstance(value, float) and not exact else repr(value)


def _norm(array: np.ndarray) -> str:
    return f"{np.linalg.norm(array.astype(float)):#.6g}"


def folder(path: Path, exact: bool = False) -> Iterator[str]:
    """Every file below a folder by its name and content."""
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_file() and not file.name.startswith("."):
            for line in content(file, exact):
                yield f"{name}: {line}".replace(str(path), "RUN")


def content(path: Path, exact: bool = False) -> Iterable[str]:
    if path.suffix == ".json":
        return values(json.loads(path.read_text()), exact=exact)
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [" ".join(values(line, exact=exact)) for line in lines]
    if path.suffix == ".pth":
        return values(dict(torch.load(path, weights_only=True)), exact=exact)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return list(values(dict(arrays), exact=exact))
    if path.name == "README.md":
        return ["a model card"]
    if path.suffix in (".csv", ".md", ".toml"):
        return path.read_text().splitlines()
    if path.suffix == ".pt2":
        model = torch.export.load(path).module()
        return values(model(torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)).detach(), "logits")
    return ["a file"] if path.stat().st_size else ["an empty file"]


def steady(lines: Iterable[str], folders: dict[Path, str]) -> list[str]:
    """Without what differs from run to run: speeds, checksums, versions, and of folders the place."""
    text = VOLATILE.sub(lambda found: found[1] or "…", "\n".join(lines))
    for folder, name in folders.items():
        text = text.replace(str(folder), name)
    return text.splitlines()


def differences(recorded: list[str], told: list[str]) -> list[str]:
    """Lines that differ by more than :data:`TOLERANCE` or by a last digit that is shown."""
    words = [[NUMBER.sub("#", " ".join(line.split())) for line in lines] for lines in (recorded, told)]
    found = []
    for kind, *ends in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        before, after = recorded[slice(*ends[:2])], told[slice(*ends[2:])]
        if kind == "equal":
            off = [pair for pair in zip(before, after, strict=True) if not _same(*pair)]
            before, after = [pair[0] for pair in off], [pair[1] for pair in off]
        found += [*(f"- {line}" for line in before), *(f"+ {line}" for line in after)]
    return found


def _same(first: str, second: str) -> bool:
    return all(_near(*pair) for pair in zip(NUMBER.findall(first), NUMBER.findall(second), strict=True))


def _near(first: str, second: str) -> bool:
    if first == second or not ({".", "e"} & {*first, *second}):
        return first == second
    decimals = max(len(number.partition("e")[0].partition(".")[2]) for number in (first, second))
    digit = 0 if "e" in first + second else 1.01 * 10**-decimals
    one, other = float(first), float(second)
    return abs(one - other) <= max(TOLERANCE * max(abs(one), abs(other)), digit, 1e-6)
