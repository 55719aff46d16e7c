"""Crops and flips of a batch on the device: torchvision's kernels image by image, and two products of matrices."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from benchmarks.speed.timing import Row, in_turn, ratio, row, wall_clock
from tllib_ancon.data.device_augmentation import device_augmentation
from tllib_ancon.data.transforms import TransformOptions

BATCH = 64


def measure(rounds: int = 15) -> list[Row]:
    """Seconds of a batch of 64 crops of 224 from squares of 256, with their flips and normalisation."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = device_augmentation(TransformOptions())
    side = transform.resizing.side
    pixels = torch.randint(256, (BATCH, side, side, 3), dtype=torch.uint8).to(device)
    ways = {
        "image by image": partial(replace(transform, at_once=False).finish, pixels, range(BATCH)),
        "in one call": partial(replace(transform, at_once=True).finish, pixels, range(BATCH)),
    }
    seconds = in_turn(ways, rounds, clock=wall_clock)
    title = f"augmentation of {BATCH} images on a {'GPU' if device.type == 'cuda' else 'CPU'}"
    return [
        *(row(f"{title}, {name}", [1e3 * value for value in seconds[name]], "ms") for name in ways),
        ratio("image by image / in one call", seconds["image by image"], seconds["in one call"]),
    ]
