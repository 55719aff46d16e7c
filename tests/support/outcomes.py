"""What runs left in their folders, and where two of them differ by a bit."""

import json

import numpy as np
import torch

SPEED = {"images_per_second", "sha256"}
"""What a run measures of its own speed, and the checksums of files that hold it."""


def outcome(folder, *patterns):
    """Path below the folder -> content of every file of these patterns."""
    paths = [path for pattern in patterns for path in folder.glob(pattern)]
    return {path.relative_to(folder).as_posix(): _content(path) for path in paths}


def differences(first, second):
    """Where two nested values differ by a bit, speed apart: NaN equals NaN, and -0 differs from 0."""
    one = _leaves(first)
    other = _leaves(second)
    return sorted(place for place in one.keys() | other.keys() if one.get(place) != other.get(place))


def _leaves(value, place=""):
    """Place -> what is equal for values that are the same to the bit."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        return {place: _comparable(value)}
    leaves = {place: len(value)}
    for name, item in items:
        if name not in SPEED:
            leaves |= _leaves(item, f"{place}/{name}")
    return leaves


def _comparable(value):
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
        return torch.load(path, map_location="cpu", weights_only=True)
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return json.loads(path.read_text())
