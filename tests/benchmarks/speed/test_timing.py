from __future__ import annotations

import multiprocessing
import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.speed.timing import exactly, family_clock, in_turn, median_interval, ratio, row


def test_candidates_take_turns_and_alternate_who_goes_first() -> None:
    order: list[str] = []
    in_turn({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2, warmup=1)
    assert order in (list("abbaab"), list("baabba"))


def test_seconds_are_those_of_the_clock_after_the_warm_up() -> None:
    times = iter([0, 100, 200, 203, 300, 305])
    assert in_turn({"a": lambda: None}, rounds=2, warmup=1, clock=lambda: next(times)) == {"a": [3, 5]}


def test_a_ratio_is_taken_within_each_round() -> None:
    measured = ratio("a / b", [2.0, 30.0, 8.0], [1.0, 10.0, 2.0], at_most=2.5)
    assert (measured.value, measured.low, measured.high, measured.unit) == (3.0, 2.5, 3.5, "x")
    assert measured.interval == (2.0, 4.0)


def test_a_limit_within_the_interval_is_neither_kept_nor_broken() -> None:
    values = [1.0, 2.0, 2.0, 3.0] * 20
    assert [row("speed", values, "ms", at_most=limit).met for limit in (0.9, 2.5, 3.1)] == [False, True, True]
    spread = row("speed", [1.0, 2.0, 3.0], "ms")
    assert [replace(spread, at_most=limit).met for limit in (0.9, 1.5, 3.0)] == [False, None, True]
    assert [replace(spread, at_least=limit).met for limit in (1.0, 1.5, 3.1)] == [True, None, False]
    assert spread.met is None


@pytest.mark.parametrize("phase", [1, 8])
def test_the_interval_holds_the_median_about_as_often_as_it_says(phase: int) -> None:
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        noise = generator.normal(size=(400 // phase, 1)) + 0.1 * generator.normal(size=(400 // phase, phase))
        low, high = median_interval(noise.ravel())
        held += low <= 0 <= high
    assert 170 <= held <= 199


def test_the_familys_clock_counts_what_children_do() -> None:
    def work() -> None:
        ended = time.process_time() + 0.3
        while time.process_time() < ended:
            pass

    started = family_clock()
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    wall, processor = family_clock() - started
    assert 0.25 < processor < 0.6
    assert wall > 0.25


@pytest.mark.parametrize(
    ("limits", "met"),
    [({}, None), ({"at_most": 2}, True), ({"at_most": 1}, False), ({"at_least": 2}, True), ({"at_least": 3}, False)],
)
def test_limits(limits: dict[str, float], met: bool | None) -> None:
    assert exactly("size", 2, "MB", **limits).met is met
    assert row("size", [2.0], "MB", **limits).met is met
