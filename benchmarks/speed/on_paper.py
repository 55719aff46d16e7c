"""What a run on many more images would need, by the measured curves and the shapes of what is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.speed.scaling import FEATURE_DIM, USUAL, Point
from benchmarks.speed.search import NEIGHBORS

IMAGES = (10**6, 10**8)
EPOCHS, BATCH, NUM_CLASSES = 30, USUAL["B"], USUAL["K"]
SLOTS = 12
"""Of a sparse store after 20 epochs of the votes that ``python -m benchmarks.speed`` casts."""

TIME_UNITS = {"years": 31_557_600, "days": 86_400, "h": 3600, "min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6}
BYTE_UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6}

BYTES_A_SAMPLE = {
    f"memory: sparse votes, {SLOTS} slots of 6 bytes, 2 on the host": 6 * SLOTS + 2,
    "memory: dense float32 votes (the authors' way)": 4 * NUM_CLASSES,
    "memory: ELR's targets": 4 * NUM_CLASSES,
    f"memory: NRC's banks, D = {FEATURE_DIM}": 4 * (FEATURE_DIM + NUM_CLASSES),
    "memory: NRC's cached search, sketch and lists": 4 * 64 + 4 * 4 * NEIGHBORS,
    "disk: --cache at 256²": 256 * 256 * 3,
}


def on_paper(points: Sequence[Point]) -> str:
    """A table for :data:`IMAGES`; nothing of that size is run, and the model's own time comes on top.

    The time of the votes depends on N through the processor's caches alone: that of the largest measured N stands for
    all. NRC's searches multiply with the whole bank: a + b N, fitted to the measured N.

    Args:
        points: of :func:`~benchmarks.speed.scaling.measure`
    """
    steps = [EPOCHS * (images // BATCH) for images in IMAGES]
    title = f"on paper: {EPOCHS} epochs, B = {BATCH}, K = {NUM_CLASSES}, one core"
    lines = [_line(title, [f"10^{len(str(n)) - 1} images" for n in IMAGES]), _line("steps", [f"{n:,}" for n in steps])]
    for what, seconds in _seconds_a_step(points).items():
        total = [each * number for each, number in zip(seconds, steps, strict=True)]
        lines.append(_line(f"time: {what}, a step", [duration(value) for value in seconds]))
        lines.append(_line(f"time: {what}, all steps", [duration(value) for value in total]))
    lines += [_line(what, [size(each * n) for n in IMAGES]) for what, each in BYTES_A_SAMPLE.items()]
    return "\n".join(lines)


def _seconds_a_step(points: Sequence[Point]) -> dict[str, list[float]]:
    def curve(what: str) -> dict[int, float]:
        return {point.size: point.seconds for point in points if point.varied == "N" and point.what == what}

    update, read = curve("votes: update"), curve("votes: read")
    votes = update[max(update)] + read[max(read)]
    searches = {f"NRC's {way} search": fitted(curve(f"NRC, {way}")) for way in ("exact", "cached")}
    return {
        "votes, update and read": [votes] * len(IMAGES),
        **{what: [constant + each * n for n in IMAGES] for what, (constant, each) in searches.items()},
    }


def fitted(curve: Mapping[int, float]) -> tuple[float, float]:
    """a and b of a + b N by least squares of the relative errors, neither below 0."""
    sizes, seconds = np.array(list(curve.items()), dtype=float).T
    each, constant = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    return max(float(constant), 0.0), max(float(each), 0.0)


def duration(seconds: float) -> str:
    """In the largest unit that leaves a number of at least 1."""
    return _in_unit(seconds, TIME_UNITS)


def size(number: float) -> str:
    """The same of bytes."""
    return _in_unit(number, BYTE_UNITS)


def _in_unit(value: float, units: Mapping[str, float]) -> str:
    """Three digits; a number that rounds up to a whole larger unit is one of that unit."""
    unit, *larger = list(units)[::-1]
    for name in larger:
        if _rounded(value / units[unit]) * units[unit] < units[name]:
            break
        unit, value = name, max(value, units[name])
    return f"{_rounded(value / units[unit]):,g} {unit}"


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _line(what: str, values: Sequence[str]) -> str:
    return f"{what:<62}" + "".join(f"{value:>14}" for value in values)
