"""What files, values and texts are told as, and when two tellings are the same."""

import re
from difflib import SequenceMatcher

import numpy as np
import torch

from tests.json_files import read_json, read_json_lines

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
VOLATILE = re.compile(
    r"[0-9a-f]{64}|(?<=images_per_second = )\S+|(?<=seconds = )\S+|(?<=versions\.)(\w+) = .*|torch \S+ on \S+"
)
TOLERANCE = 3e-3
"""Relative: the last bits of a number depend on the processor and on PyTorch's version, and training enlarges them."""


def values(value, name=""):
    """``name.key[2] = value`` for every value of nested dicts and lists, in the order of the names; of a run's metrics
    all on one line."""
    if isinstance(value, dict) and "epoch" in value and name:
        yield f"{name}: {' '.join(values(value))}"
    elif isinstance(value, dict) and value:
        prefix = f"{name}." if name else ""
        for key in sorted(value):
            yield from values(value[key], f"{prefix}{key}")
    elif isinstance(value, list | tuple) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from values(item, f"{name}[{number}]")
    else:
        yield f"{name} = {shown(value)}"


def shown(value):
    """Of a tensor or an array its type and shape alone: numbers of weights change with the machine."""
    if isinstance(value, torch.Tensor | np.ndarray):
        array = np.asarray(value)
        kind = array.dtype if array.dtype.kind in "fiu" else array.dtype.kind
        return f"{kind} {array.shape}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, float):
        return f"{value:#.6g}"
    return repr(value)


def folder(path):
    """Every file below a folder by its name and content."""
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name.startswith("."):
            continue
        name = file.relative_to(path).as_posix()
        for line in content(file):
            yield f"{name}: {line}".replace(str(path), "RUN")


def content(path):
    if path.suffix == ".json":
        return values(read_json(path))
    if path.suffix == ".jsonl":
        return [" ".join(values(record)) for record in read_json_lines(path)]
    if path.suffix == ".pth":
        return values(dict(torch.load(path, weights_only=True)))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return list(values(dict(arrays)))
    if path.suffix in (".csv", ".md", ".toml"):
        return path.read_text().splitlines()
    return ["a file"] if path.stat().st_size else ["an empty file"]


def steady(lines, folders):
    """Without what differs from run to run: speeds, checksums, versions, and of folders the place."""
    text = VOLATILE.sub(lambda found: found[1] or "…", "\n".join(lines))
    for folder, name in folders.items():
        text = text.replace(str(folder), name)
    return text.splitlines()


def differences(recorded, told):
    """Lines that differ by more than :data:`TOLERANCE` or by a last digit that is shown."""
    found = []
    matcher = SequenceMatcher(None, _without_numbers(recorded), _without_numbers(told), autojunk=False)
    for kind, start, end, told_start, told_end in matcher.get_opcodes():
        before = recorded[start:end]
        after = told[told_start:told_end]
        if kind == "equal":
            pairs = [pair for pair in zip(before, after, strict=True) if not _same(*pair)]
            before = [pair[0] for pair in pairs]
            after = [pair[1] for pair in pairs]
        found += [f"- {line}" for line in before]
        found += [f"+ {line}" for line in after]
    return found


def _without_numbers(lines):
    return [NUMBER.sub("#", " ".join(line.split())) for line in lines]


def _same(first, second):
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(_near(*pair) for pair in pairs)


def _near(first, second):
    if first == second or "." not in first + second:
        return first == second
    decimals = max(len(number.partition(".")[2]) for number in (first, second))
    last_digit = 0 if "e" in first + second else 1.01 * 10**-decimals
    larger = max(abs(float(first)), abs(float(second)))
    return abs(float(first) - float(second)) <= max(TOLERANCE * larger, last_digit, 1e-6)
