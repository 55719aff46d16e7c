from __future__ import annotations

import pytest

from tllib_ancon.bench.timing import exactly, in_turn, ratio, row


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
    assert measured.met is False


@pytest.mark.parametrize(
    ("limits", "met"),
    [({}, None), ({"at_most": 2}, True), ({"at_most": 1}, False), ({"at_least": 2}, True), ({"at_least": 3}, False)],
)
def test_limits(limits: dict[str, float], met: bool | None) -> None:
    assert exactly("size", 2, "MB", **limits).met is met
    assert row("size", [2.0], "MB", **limits).met is met
