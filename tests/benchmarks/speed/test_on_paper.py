from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from benchmarks.speed import on_paper
from benchmarks.speed.scaling import FEATURE_DIM, Point
from benchmarks.speed.search import NEIGHBORS
from tllib_ancon.self_training.elr import EarlyLearningRegularization
from tllib_ancon.self_training.memory_bank import MemoryBank
from tllib_ancon.self_training.neighbors import CachedSearch
from tllib_ancon.self_training.votes import DenseVotes

K = on_paper.NUM_CLASSES


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("dense float32 votes", lambda n: DenseVotes(n, K, weighted=True)),
        ("ELR", lambda n: EarlyLearningRegularization(n, K)),
        ("banks", lambda n: MemoryBank(n, K, FEATURE_DIM)),
        ("cached search", lambda n: CachedSearch(n, FEATURE_DIM, NEIGHBORS, NEIGHBORS)),
    ],
)
def test_bytes_a_sample_are_those_of_the_buffers(what: str, make) -> None:
    def nbytes(part: nn.Module) -> int:
        return sum(buffer.nbytes for buffer in part.buffers())

    (written,) = (each for name, each in on_paper.BYTES_A_SAMPLE.items() if what in name)
    assert nbytes(make(2000)) - nbytes(make(1000)) == pytest.approx(1000 * written, abs=1000)


def test_a_line_is_fitted_through_the_curve() -> None:
    assert on_paper.fitted({1000: 5.0, 2000: 7.0, 4000: 11.0}) == pytest.approx((3.0, 0.002))
    assert on_paper.fitted({1000: 1.0, 2000: 1.0, 3000: 1.0}) == pytest.approx((1.0, 0.0))
    assert on_paper.fitted({1000: 1.0, 2000: 2.5, 3000: 4.0})[0] == 0


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (5e-7, "0.5 µs"),
        (0.9994, "999 ms"),
        (math.nextafter(1, 0), "1 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (86_200, "23.9 h"),
        (86_354, "1 days"),
        (1e13, "317,000 years"),
    ],
)
def test_a_duration_is_rounded_before_its_unit_is_chosen(seconds: float, shown: str) -> None:
    assert on_paper.duration(seconds) == shown


@given(st.floats(1e-6, 1e13))
def test_a_duration_is_of_three_digits_and_at_least_one_of_its_unit(seconds: float) -> None:
    number, unit = on_paper.duration(seconds).split()
    value = float(number.replace(",", ""))
    assert value >= 1
    assert value * on_paper.TIME_UNITS[unit] == pytest.approx(seconds, rel=0.006)


def test_the_table() -> None:
    curves = {"votes: update": 1e-4, "votes: read": 2e-5, "NRC, exact": 1e-6, "NRC, cached": 1e-7}
    points = [
        Point(what, "N", size, seconds * (size if "NRC" in what else 1), 0)
        for what, seconds in curves.items()
        for size in (1000, 10_000)
    ]
    lines = on_paper.on_paper([*points, Point("votes: read", "K", 10**9, 99.0, 0)]).splitlines()
    shown = {line[:62].strip(): line[62:].split("  ") for line in lines}
    values = {what: [value.strip() for value in cells if value.strip()] for what, cells in shown.items()}
    assert values["steps"] == ["468,750", "46,875,000"]
    assert values["time: votes, update and read, a step"] == ["120 µs", "120 µs"]
    assert values["time: votes, update and read, all steps"] == ["56.2 s", "1.56 h"]
    assert values["time: NRC's exact search, a step"] == ["1 s", "1.67 min"]
    assert values["time: NRC's exact search, all steps"] == ["5.43 days", "149 years"]
    assert values["disk: --cache at 256²"] == ["197 GB", "19.7 TB"]
