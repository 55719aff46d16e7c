"""Theorem 3.1: when a majority of confident votes is right."""

import math

import torch
from torch import Generator, Tensor

from benchmarks.theory.statements import DRAWS, TOLERANCE, Verdict, statement


def xi(mean_accuracy: Tensor | float) -> Tensor:
    r"""The rate :math:`\xi(z) = 2z - 1 - \log(2z)` of Theorem 3.1, of a mean accuracy z in [1/2, 1]."""
    z = torch.as_tensor(mean_accuracy, dtype=torch.float64)
    return 2 * z - 1 - (2 * z).log()


def ensemble_error_bound(num_votes: int, mean_accuracy: Tensor | float) -> float:
    r"""Theorem 3.1: :math:`p(\arg\max_k \bar f_k(x) \ne Y(x)) \le \exp(-Q \, \xi(\bar p) / 2)`, of independent votes.

    Hoeffding's inequality, :math:`\exp(-Q (2 \bar p - 1)^2 / 2)`, assumes the same and is stronger at every
    :math:`\bar p` in (1/2, 1], since :math:`u - \log(1 + u) \le u^2 / 2`.
    """
    return float((-num_votes / 2 * xi(mean_accuracy)).exp())


def majority_error(accuracies: Tensor) -> float:
    r"""Exact :math:`p(S \le Q/2)` of accuracies (Q,): no strict majority of independent votes is right.

    S has the Poisson-binomial distribution. This is the error of the plurality vote with two classes, or with
    more of them when all wrong votes agree, and an upper bound of it otherwise.
    """
    num_right = torch.ones(1, dtype=torch.float64)
    for p in accuracies.double():
        stay, rise = num_right * (1 - p), num_right * p
        num_right = torch.cat((stay, stay.new_zeros(1))) + torch.cat((rise.new_zeros(1), rise))
    return float(num_right[: len(accuracies) // 2 + 1].sum())


@statement(
    "ξ(z) = 2z − 1 − log 2z is the rate the Chernoff bound of the lemma gives",
    "Theorem 3.1",
    "the bound's exponent z(eᵗ − 1) − t/2 minimised over a grid of t",
)
def rate_is_chernoff(generator: Generator) -> Verdict:
    z = torch.linspace(0.5, 1, 501, dtype=torch.float64)
    t = torch.linspace(-1.5, 0, 30_001, dtype=torch.float64)
    chernoff = -2 * torch.stack([(mean * t.expm1() - t / 2).min() for mean in z])
    difference = float((chernoff - xi(z)).abs().max())
    return difference < 1e-8, {"largest difference": difference, "ξ(0.5)": float(xi(0.5)), "ξ(1)": float(xi(1.0))}


@statement(
    "the ensemble errs with probability at most exp(−Q ξ(p̄) / 2)",
    "Theorem 3.1, Eq. 6",
    f"exact errors of {DRAWS} lists of unequal accuracies; Hoeffding's exponent is at least twice this",
)
def ensemble_error(generator: Generator) -> Verdict:
    slack: list[float] = []
    while len(slack) < DRAWS:
        num_votes = int(torch.randint(1, 40, (), generator=generator))
        accuracies = torch.rand(num_votes, generator=generator, dtype=torch.float64).sqrt()
        if accuracies.mean() > 0.5:
            slack.append(majority_error(accuracies) / ensemble_error_bound(num_votes, accuracies.mean()))
    bounds = {"bound at Q = 20, p̄ = 1": ensemble_error_bound(20, 1.0), "Hoeffding there": math.exp(-10)}
    return max(slack) <= 1, {"largest error / bound": max(slack), **bounds}


@statement(
    "while p̄ > 1/2, the error rate decreases monotonically as Q increases",
    "after Theorem 3.1",
    "the bound decreases at fixed p̄; votes of 90, 55 and 55 % together err more than the first alone",
)
def more_votes_fewer_errors(generator: Generator) -> Verdict:
    many = torch.tensor([0.9, 0.55, 0.55], dtype=torch.float64)
    before, after = majority_error(many[:1]), majority_error(many)
    numbers = {"error with Q = 1": before, "error with Q = 3": after, "p̄ with Q = 3": float(many.mean())}
    return after < before, numbers


@statement(
    "p̄ > 1/2 makes the ensemble asymptotically correct as Q → ∞",
    "after Theorem 3.1",
    "p̄ = 1/2 + 1/Q exceeds 1/2 at every Q; p̄ must stay away from 1/2",
)
def correct_in_the_limit(generator: Generator) -> Verdict:
    errors = {
        f"error at Q = {q}": majority_error(torch.full((q,), 0.5 + 1 / q, dtype=torch.float64)) for q in (11, 101, 1001)
    }
    return errors["error at Q = 1001"] < errors["error at Q = 11"], errors


@statement(
    "the error bound also holds for votes that depend on each other",
    "Theorem 3.1, assumption",
    "100 votes of accuracy 0.7; one model's predictions over epochs repeat each other",
    claimed=False,
)
def dependent_votes(generator: Generator) -> Verdict:
    num_votes, accuracy, trials = 100, 0.7, 20_000

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    errors = {}
    for share in (0.0, 0.5, 1.0):
        copied = draw(trials, num_votes) < share
        right = torch.where(copied, draw(trials, 1) < accuracy, draw(trials, num_votes) < accuracy)
        wrong = right.sum(dim=1) <= num_votes / 2
        errors[f"error where {share:.0%} of the votes repeat one"] = float(wrong.double().mean())
    bound = ensemble_error_bound(num_votes, accuracy)
    return max(errors.values()) <= bound, {**errors, "bound": bound}


@statement(
    "uniform weights on confident votes solve argmax_w E log f̄_Y asymptotically",
    "Section 3.2, Eq. 5",
    "argmax f̄ becomes right but f̄_Y tends to p̄; where x determines Y, weights on right votes reach 0",
)
def votes_maximise_likelihood(generator: Generator) -> Verdict:
    right = torch.rand(2000, 1001, generator=generator) < 0.6
    likelihood = float(right.double().mean(dim=1).log().mean())
    return likelihood > -TOLERANCE, {"E log f̄_Y at Q = 1001, p̄ = 0.6": likelihood, "largest possible": 0.0}
