"""Measuring side by side: rounds in turn, medians with their spread and certainty, and ratios of the same round."""

import math
import time
from typing import NamedTuple

import numpy as np
import torch

RESAMPLES = 1000


class Row(NamedTuple):
    """One measured number: its median and quartiles."""

    name: str
    median: float
    first_quartile: float
    third_quartile: float
    unit: str


def wall_clock():
    """Seconds on the wall, once a GPU, where there is one, has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def in_turn(candidates, rounds, warmup=1, clock=time.thread_time):
    """Seconds of each candidate in each round; every other round goes through them backwards.

    The default clock is the processor time of this thread, which other programs do not lengthen by waiting.
    """
    seconds = {name: [] for name in candidates}
    for number in range(-warmup, rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            started = clock()
            candidates[name]()
            seconds[name].append(clock() - started)
    return {name: values[warmup:] for name, values in seconds.items()}


def row(name, values, unit):
    """The median and the quartiles of ``values``."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Row(name, median, low, high, unit)


def median_interval(values):
    """95 % bootstrap interval of the median, from runs of √n rounds: a busy machine is so for longer than one."""
    count = len(values)
    length = math.isqrt(count)
    starts = np.random.default_rng(0).integers(count, size=(RESAMPLES, -(-count // length), 1))
    drawn = (starts + np.arange(length)).reshape(RESAMPLES, -1)[:, :count] % count
    low, high = np.quantile(np.median(np.asarray(values)[drawn], axis=1), (0.025, 0.975))
    return float(low), float(high)
