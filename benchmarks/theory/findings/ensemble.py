"""Theorem 3.1: what the ensemble of confident votes gets right."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from benchmarks.theory.findings.finding import DRAWS, TOLERANCE, Finding
from benchmarks.theory.votes import ensemble_error_bound, majority_error, xi


def rate_is_chernoff(generator: Generator) -> Finding:
    z = torch.linspace(0.5, 1, 501, dtype=torch.float64)
    t = torch.linspace(-1.5, 0, 30_001, dtype=torch.float64)
    chernoff = -2 * torch.stack([(mean * t.expm1() - t / 2).min() for mean in z])
    difference = float((chernoff - xi(z)).abs().max())
    return Finding(
        "ξ(z) = 2z − 1 − log 2z is the rate the Chernoff bound of the lemma gives",
        "Theorem 3.1",
        difference < 1e-8,
        {"largest difference": difference, "ξ(0.5)": float(xi(0.5)), "ξ(1)": float(xi(1.0))},
        "the bound's exponent z(eᵗ − 1) − t/2 minimised over a grid of t",
    )


def ensemble_error(generator: Generator) -> Finding:
    slack: list[float] = []
    while len(slack) < DRAWS:
        num_votes = int(torch.randint(1, 40, (), generator=generator))
        accuracies = torch.rand(num_votes, generator=generator, dtype=torch.float64).sqrt()
        if accuracies.mean() > 0.5:
            bound = ensemble_error_bound(num_votes, accuracies.mean())
            slack.append(majority_error(accuracies) / float(bound))
    return Finding(
        "the ensemble errs with probability at most exp(−Q ξ(p̄) / 2)",
        "Theorem 3.1, Eq. 6",
        max(slack) <= 1,
        {
            "largest error / bound": max(slack),
            "bound at Q = 20, p̄ = 1": float(ensemble_error_bound(20, 1.0)),
            "Hoeffding there": math.exp(-10),
        },
        f"exact errors of {DRAWS} lists of unequal accuracies; Hoeffding's exponent is at least twice this",
    )


def more_votes_fewer_errors(generator: Generator) -> Finding:
    few = torch.tensor([0.9], dtype=torch.float64)
    many = torch.tensor([0.9, 0.55, 0.55], dtype=torch.float64)
    before, after = majority_error(few), majority_error(many)
    return Finding(
        "while p̄ > 1/2, the error rate decreases monotonically as Q increases",
        "after Theorem 3.1",
        after < before,
        {"error with Q = 1": before, "error with Q = 3": after, "p̄ with Q = 3": float(many.mean())},
        "the bound decreases at fixed p̄; votes of 90, 55 and 55 % together err more than the first alone",
    )


def correct_in_the_limit(generator: Generator) -> Finding:
    errors = {
        f"error at Q = {q}": majority_error(torch.full((q,), 0.5 + 1 / q, dtype=torch.float64)) for q in (11, 101, 1001)
    }
    return Finding(
        "p̄ > 1/2 makes the ensemble asymptotically correct as Q → ∞",
        "after Theorem 3.1",
        errors["error at Q = 1001"] < errors["error at Q = 11"],
        errors,
        "p̄ = 1/2 + 1/Q exceeds 1/2 at every Q; p̄ must stay away from 1/2",
    )


def dependent_votes(generator: Generator) -> Finding:
    num_votes, accuracy, trials = 100, 0.7, 20_000

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    errors = {}
    for share in (0.0, 0.5, 1.0):
        copied = draw(trials, num_votes) < share
        right = torch.where(copied, draw(trials, 1) < accuracy, draw(trials, num_votes) < accuracy)
        wrong = right.sum(dim=1) <= num_votes / 2
        errors[f"error where {share:.0%} of the votes repeat one"] = float(wrong.double().mean())
    bound = float(ensemble_error_bound(num_votes, accuracy))
    return Finding(
        "the error bound also holds for votes that depend on each other",
        "Theorem 3.1, assumption",
        max(errors.values()) <= bound,
        {**errors, "bound": bound},
        f"{num_votes} votes of accuracy {accuracy}; one model's predictions over epochs repeat each other",
        claimed=False,
    )


def votes_maximise_likelihood(generator: Generator) -> Finding:
    right = torch.rand(2000, 1001, generator=generator) < 0.6
    likelihood = float(right.double().mean(dim=1).log().mean())
    return Finding(
        "uniform weights on confident votes solve argmax_w E log f̄_Y asymptotically",
        "Section 3.2, Eq. 5",
        likelihood > -TOLERANCE,
        {"E log f̄_Y at Q = 1001, p̄ = 0.6": likelihood, "largest possible": 0.0},
        "argmax f̄ becomes right but f̄_Y tends to p̄; where x determines Y, weights on right votes reach 0",
    )
