"""What runs left in their folders, and where two of them differ by a bit.

``python -m tests.support.outcomes RUN OTHER`` compares the models and metrics of two runs.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

SPEED = {"images_per_second", "sha256"}
"""What a run measures of its own speed, and the checksums of files that hold it."""


def main(words=None):
    runs = [Path(word) for word in words or sys.argv[1:]]
    found = sorted(differences(*(outcome(run, "checkpoints/*.pth", "metrics.jsonl") for run in runs)))
    print("\n".join(found) or f"{' and '.join(map(str, runs))} are the same bit for bit")
    return int(bool(found))


def outcome(folder, *patterns):
    """Path below the folder -> content of every file of these patterns."""
    contents = {}
    for pattern in patterns:
        for path in folder.glob(pattern):
            contents[path.relative_to(folder).as_posix()] = _content(path)
    return contents


def differences(first, second, name=""):
    """Where two nested values differ by a bit: NaN equals NaN, and -0 differs from 0."""
    places = []
    if isinstance(first, dict) and isinstance(second, dict):
        places += [f"{name}/{key} (missing)" for key in first.keys() ^ second.keys()]
        for key in first.keys() & second.keys():
            places += differences(first[key], second[key], f"{name}/{key}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, pair in enumerate(zip(first, second, strict=True)):
            places += differences(*pair, f"{name}[{number}]")
    elif _comparable(first) != _comparable(second):
        places.append(name)
    return places


def _comparable(value):
    """What is equal for values of one type that are the same to the bit."""
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:  # NumPy has no such type
            return torch.bfloat16, _comparable(value.view(torch.int16))
        value = value.cpu().numpy()
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return type(value), value


def _content(path):
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    if path.suffix == ".pth":
        return _without_speed(torch.load(path, map_location="cpu", weights_only=True))
    if path.suffix == ".jsonl":
        return _without_speed([json.loads(line) for line in path.read_text().splitlines()])
    return _without_speed(json.loads(path.read_text()))


def _without_speed(value):
    if isinstance(value, dict):
        return {str(name): _without_speed(entry) for name, entry in value.items() if name not in SPEED}
    return [_without_speed(entry) for entry in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    sys.exit(main())
