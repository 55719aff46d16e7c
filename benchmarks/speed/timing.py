"""Measuring side by side: rounds in turn, medians with their spread and certainty, and ratios of the same round."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch

Clock = Callable[[], float]
"""Gives seconds."""

RESAMPLES = 1000
HEADER = f"{'':<72}{'median':>10} {'':<9}{'quartiles':>19} {'95 % of the median':>19}  wanted"


@dataclass(frozen=True)
class Row:
    """One measured number.

    Attributes:
        name: what was measured
        value: the median, or the one value of what does not vary
        low, high: first and third quartile
        unit: of these three; "x" for a ratio
        at_most: what the project asks for, where it asks
        interval: 95 % bootstrap interval of the median, of what was measured more than once
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    at_most: float | None = None
    interval: Sequence[float] | None = None

    def __str__(self) -> str:
        """A line of the table below :data:`HEADER`."""
        spread, interval = _range(self.low, self.high), _range(*(self.interval or (0, 0)))
        value = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.4g}"
        columns = f"{self.name:<72}{value:>10} {self.unit:<9}{spread:>19} {interval:>19}"
        return f"{columns}  {self._verdict()}".rstrip()

    def _verdict(self) -> str:
        """The limit and whether the interval of the median keeps it."""
        if self.at_most is None:
            return ""
        low, high = self.interval or (self.value, self.value)
        verdict = "undecided"
        if high <= self.at_most:
            verdict = "met"
        elif low > self.at_most:
            verdict = "NOT MET"
        return f"≤ {self.at_most:g}  {verdict}"


def _range(low: float, high: float) -> str:
    return "" if low == high else f"{low:.4g} – {high:.4g}"


def wall_clock() -> float:
    """Seconds on the wall, once a GPU, where there is one, has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def in_turn(
    candidates: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 1, clock: Clock = time.thread_time
) -> dict[str, list[Any]]:
    """Seconds of each candidate in each round; every other round goes through them backwards.

    The default clock is the processor time of this thread, which other programs do not lengthen by waiting.
    """
    seconds: dict[str, list[Any]] = {name: [] for name in candidates}
    for number in range(-warmup, rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            started = clock()
            candidates[name]()
            seconds[name].append(clock() - started)
    return {name: values[warmup:] for name, values in seconds.items()}


def row(name: str, values: Iterable[float], unit: str, at_most: float | None = None) -> Row:
    """The median of ``values``, their quartiles and the median's interval; a single value does not vary."""
    values = list(values)
    if len(values) < 2:
        return Row(name, *values * 3, unit, at_most)
    low, _, high = quantiles(values, n=4, method="inclusive")
    return Row(name, median(values), low, high, unit, at_most, median_interval(values))


def ratio(name: str, numerators: Iterable[float], denominators: Iterable[float], at_most: float | None = None) -> Row:
    """The same of the ratios within a round."""
    pairs = zip(numerators, denominators, strict=True)
    return row(name, [above / below for above, below in pairs], "x", at_most)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median, from runs of √n rounds: a busy machine is so for longer than one."""
    count = len(values)
    length = math.isqrt(count)
    starts = np.random.default_rng(0).integers(count, size=(RESAMPLES, -(-count // length), 1))
    drawn = (starts + np.arange(length)).reshape(RESAMPLES, -1)[:, :count] % count
    low, high = np.quantile(np.median(np.asarray(values)[drawn], axis=1), (0.025, 0.975))
    return float(low), float(high)
