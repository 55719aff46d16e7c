"""Measuring side by side: rounds in turn, medians and quartiles, and ratios of the same round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

import torch

Clock = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One measured number.

    Attributes:
        name: what was measured
        value: the median, or the one value of what does not vary
        low, high: first and third quartile
        unit: of these three; "x" for a ratio
        at_most, at_least: what the project asks for, where it asks
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the value keeps its limit; None without one."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


def process_clock() -> float:
    """Seconds of processor time of this thread, which other programs on the machine do not lengthen by waiting."""
    return time.thread_time()


def device_clock() -> float:
    """Seconds on the wall once the GPU has done what it was given."""
    torch.cuda.synchronize()
    return time.perf_counter()


def in_turn(
    candidates: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 1, clock: Clock = process_clock
) -> dict[str, list[float]]:
    """Seconds of each candidate in each round; every other round goes through them backwards."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(-warmup, rounds):
        order = list(candidates) if number % 2 else list(reversed(candidates))
        for name in order:
            started = clock()
            candidates[name]()
            seconds[name].append(clock() - started)
    return {name: values[warmup:] for name, values in seconds.items()}


def row(name: str, values: Sequence[float], unit: str, **limits: float) -> Row:
    """The median of ``values`` and their quartiles."""
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Row(name, median(values), low, high, unit, **limits)


def ratio(name: str, numerators: Sequence[float], denominators: Sequence[float], **limits: float) -> Row:
    """The median of the ratios within a round, and their quartiles."""
    pairs = zip(numerators, denominators, strict=True)
    return row(name, [above / below for above, below in pairs], "x", **limits)


def exactly(name: str, value: float, unit: str, **limits: float) -> Row:
    """A number that does not vary."""
    return Row(name, value, value, value, unit, **limits)
