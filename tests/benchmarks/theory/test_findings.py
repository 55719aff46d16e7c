from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch

from benchmarks.theory import findings as theory_findings
from benchmarks.theory.__main__ import TABLE, main
from benchmarks.theory.findings import Finding, adaptation, findings, page, smoothing

HOLD = {
    "rate_is_chernoff",
    "ensemble_error",
    "optimal_smoothing_minimises",
    "corrected_ratio_bound",
    "pinsker",
    "gradient_of_the_smoothed_label",
    "optimality_gap",
    "better_than_self_training",
}


@pytest.fixture(scope="module")
def by_name() -> dict[str, Finding]:
    results = findings(torch.Generator().manual_seed(0))
    return dict(zip((test.__name__ for test in theory_findings.TESTS), results, strict=True))


def numbers(finding: Finding) -> list[float]:
    return list(finding.numbers.values())


def test_what_holds_and_what_does_not(by_name: dict[str, Finding]) -> None:
    assert {name for name, finding in by_name.items() if finding.holds} == HOLD


def test_every_finding_says_what_where_and_how_much(by_name: dict[str, Finding]) -> None:
    for name, finding in by_name.items():
        assert finding.statement, name
        assert finding.where, name
        assert finding.note, name
        assert finding.numbers, name
        assert not any(math.isnan(value) for value in numbers(finding)), name


def test_counterexamples_that_need_no_luck(by_name: dict[str, Finding]) -> None:
    p, q = 0.9, 0.55
    three = 1 - (p * q * q + 2 * p * q * (1 - q) + (1 - p) * q * q)
    assert numbers(by_name["more_votes_fewer_errors"])[:2] == pytest.approx([1 - p, three])

    ratio, bound = numbers(by_name["printed_ratio_bound"])[:2]
    assert ratio > 0.97
    assert bound < 1e-20

    assert by_name["informative_with_hard_votes"].numbers["g^KL"] == math.inf
    assert numbers(by_name["votes_maximise_likelihood"])[0] == pytest.approx(math.log(0.6), abs=0.01)


def test_random_counterexamples_are_far_from_rounding(by_name: dict[str, Finding]) -> None:
    *largest, smallest = numbers(by_name["optimal_smoothing_is_a_weight"])
    assert max(largest) > 2
    assert smallest < -0.01
    assert numbers(by_name["gradient_of_the_smoothed_label"])[0] < 1e-12
    assert numbers(by_name["gradient_with_counts"])[0] > 0.1
    as_read, weighed = numbers(by_name["votes_as_a_per_sample_weight"])
    assert weighed < 1e-12 < 0.1 < as_read
    distance, divergence = numbers(by_name["pinsker_with_counts"])
    assert divergence < 0 < distance
    assert numbers(by_name["alignment_means_a_good_teacher"])[0] == 1
    variation, *sizes = numbers(by_name["weights_and_the_marginal"])
    assert variation == 0
    assert max(sizes) > 0.02
    independent, *dependent, bound = numbers(by_name["dependent_votes"])
    assert independent < bound < 0.2 < min(dependent)
    whole, printed = numbers(by_name["calibration_bins"])
    assert printed < whole / 2


def test_a_bound_that_holds_is_near_enough_to_fail(by_name: dict[str, Finding]) -> None:
    assert 0.5 < by_name["ensemble_error"].numbers["largest error / bound"] <= 1
    assert numbers(by_name["optimal_smoothing_minimises"])[0] == pytest.approx(1)
    assert 0.3 < by_name["pinsker"].numbers["largest ratio"] <= 1
    step, whole = numbers(by_name["optimality_gap"])[:2]
    assert 0.8 < whole <= step <= 1
    printed, recursive, gap = numbers(by_name["exponent_of_the_corollary"])
    assert gap < recursive < printed - 1e-4


def test_the_pl_constant_vanishes_with_distance(by_name: dict[str, Finding]) -> None:
    constants = numbers(by_name["pl_condition"])
    assert constants == sorted(constants, reverse=True)
    assert constants[-1] < constants[0] / 100


def test_the_numbers_repeat() -> None:
    for test in (smoothing.printed_ratio_bound, adaptation.optimality_gap):
        first, second = (test(torch.Generator().manual_seed(3)) for _ in range(2))
        assert first == second


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_verdicts_do_not_hang_on_the_seed(seed: int) -> None:
    slow = {"better_than_self_training", "ensemble_error"}
    for test in theory_findings.TESTS:
        if test.__name__ not in slow:
            assert test(torch.Generator().manual_seed(seed)).holds == (test.__name__ in HOLD), test.__name__


@pytest.fixture
def two_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Finding("a | b", "Eq. 1", True, {"x": 0.12345}, "so")
    results = [said, replace(said, holds=False), replace(said, claimed=False)]
    monkeypatch.setattr("benchmarks.theory.__main__.findings", lambda generator: results)


def test_the_command_writes_the_page_and_counts_what_is_not_claimed_apart(two_findings, tmp_path, capsys) -> None:
    assert main(["--seed", "3", "--out", str(tmp_path / "theory.md")]) == 0
    written = (tmp_path / "theory.md").read_text()
    assert written == capsys.readouterr().out
    assert "--seed 3`" in written
    assert "## What the paper says: 1 of 2 statements hold" in written
    assert "## What it does not say: 1 of 1 statements hold" in written
    assert r"| a \| b | Eq. 1 | **no** | x 0.1235 | so |" in written


def test_the_committed_table_has_these_statements_and_verdicts(by_name: dict[str, Finding]) -> None:
    def verdicts(text: str) -> list[list[str]]:
        return [line.split(" | ")[:3] for line in text.splitlines() if line.startswith("| ")]

    assert verdicts(TABLE.read_text()) == verdicts(page(list(by_name.values()), 0))


def test_the_table_has_a_row_per_finding(by_name: dict[str, Finding]) -> None:
    lines = [line for line in page(list(by_name.values()), 0).splitlines() if line.startswith("|")]
    assert len(lines) == len(by_name) + 2 * 2
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 6 for line in lines)
    assert sum("**no**" in line for line in lines) == len(by_name) - len(HOLD)
