"""Theorem 3.2: the smoothing λ† and the size of the neighbourhood that it leaves."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from benchmarks.theory.findings.finding import DRAWS, TOLERANCE, Finding
from benchmarks.theory.findings.random_problems import draw
from benchmarks.theory.linear_model import (
    LinearProblem,
    neighborhood,
    one_hot,
    printed_teacher_bias,
    teacher_divergence,
)


def optimal_smoothing_minimises(generator: Generator) -> Finding:
    offsets = torch.linspace(-1, 1, 201, dtype=torch.float64)
    excess, ratios, lemma_errors = [], [], []
    for _ in range(DRAWS):
        problem, pseudo_labels, ensemble = draw(generator)
        terms = neighborhood(problem, pseudo_labels, ensemble, 8, 0.1)
        best = terms.optimal_smoothing
        excess.append(float((terms.size(best) / terms.size(best + offsets)).max()))
        ratios.append(float(terms.ratio))
        curvature = terms.teacher_noise + 2 / terms.step * terms.teacher_bias
        lemma_errors.append(float((terms.ratio - 1 + terms.alignment**2 / (curvature * terms.noise)).abs()))
    return Finding(
        "λ† minimises N(λ), N(λ†)/N(0) is as printed, and at most 1",
        "Theorem 3.2, Lemma B.6",
        max(excess) <= 1 + TOLERANCE and max(lemma_errors) < TOLERANCE and max(ratios) <= 1,
        {"largest N(λ†)/N(λ)": max(excess), "largest N(λ†)/N(0)": max(ratios), "smallest": min(ratios)},
        f"{DRAWS} random problems",
    )


def optimal_smoothing_is_a_weight(generator: Generator) -> Finding:
    problem, pseudo_labels, _ = draw(generator)
    numbers = {}
    for share in (1.0, 0.01, 0.0001):
        ensemble = torch.lerp(pseudo_labels, problem.label_probabilities, share)
        terms = neighborhood(problem, pseudo_labels, ensemble, 8, 0.1)
        numbers[f"λ† with f̄ {share:g} of the way from Ŷ to p(Y|x)"] = float(terms.optimal_smoothing)
    smallest = min(_misleading_smoothing(*draw(generator)[:2]) for _ in range(DRAWS))
    return Finding(
        "λ† is a λ ∈ [0, 1] of Eq. 1",
        "Theorem 3.2, Eq. 1",
        max(numbers.values()) <= 1 and smallest >= 0,
        {**numbers, "smallest λ† with f̄ wrong at one point": smallest},
        "λ† grows without limit as f̄ approaches Ŷ and can be negative; clipped to [0, 1], N still shrinks",
    )


def alignment_means_a_good_teacher(generator: Generator) -> Finding:
    smallest = math.inf
    for _ in range(DRAWS):
        problem, pseudo_labels, _ = draw(generator)
        worst = one_hot(problem.label_probabilities.argmin(dim=1), problem.num_classes)
        smallest = min(smallest, float(neighborhood(problem, pseudo_labels, worst, 1, 0.1).alignment))
    return Finding(
        "E⟨∇l̃_ξ(θ*), ĝ_ξ⟩ ≥ 0 says that the teacher is sufficiently good",
        "Theorem 3.2",
        smallest < 0,
        {"smallest value of the worst teacher, b = 1": smallest},
        "per sample it is at least (1 − p_Ŷ)(1 − f̄_Ŷ) ‖x‖² ≥ 0 for any teacher, here the least likely class",
    )


def printed_ratio_bound(generator: Generator) -> Finding:
    problem = LinearProblem(
        torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    )
    ensemble, pseudo_labels = problem.label_probabilities, problem.pseudo_labels(problem.optimum)
    terms = neighborhood(problem, pseudo_labels, ensemble, 8, 0.1)
    printed = printed_teacher_bias(problem, pseudo_labels, ensemble)
    bound = terms.ratio_bound(teacher_divergence(problem, ensemble), printed)
    exceeded = 0
    for _ in range(DRAWS):
        other, labels, teacher = draw(generator)
        bias = neighborhood(other, labels, teacher, 8, 0.1).teacher_bias
        exceeded += bool(bias > printed_teacher_bias(other, labels, teacher))
    return Finding(
        "N(λ†)/N(0) ≤ min(1, 2 min(1, C² g^KL / σ*σ) + 2 C² g^C / Lγσ²)",
        "Theorem 3.2, Eq. 8",
        bool(terms.ratio <= bound + TOLERANCE),
        {
            "ratio": float(terms.ratio),
            "bound": float(bound),
            "‖ĝ‖²": float(terms.teacher_bias),
            "C² g^C": float(printed),
            "share of random problems with ‖ĝ‖² > C² g^C": exceeded / DRAWS,
        },
        "x = ±1 with f̄ = f(θ*); the last step bounds ‖E[X(f̄ − Ŷ)]‖ by C‖E[f̄ − Ŷ]‖, which is not so",
    )


def corrected_ratio_bound(generator: Generator) -> Finding:
    excess = []
    for spread in torch.logspace(-2, 0.5, DRAWS).tolist():
        problem, pseudo_labels, ensemble = draw(generator, spread)
        terms = neighborhood(problem, pseudo_labels, ensemble, 8, 10.0)
        if terms.alignment >= 0:
            bound = terms.ratio_bound(teacher_divergence(problem, ensemble), terms.teacher_bias)
            excess.append(float(terms.ratio - bound))
    return Finding(
        "the same with ‖ĝ‖² in place of C² g^C, as one line before in the proof",
        "proof of Theorem 3.2",
        max(excess) <= TOLERANCE,
        {"largest ratio − bound": max(excess), "problems": len(excess)},
        "random problems with a non-negative alignment and a soft, normalised f̄",
    )


def informative_with_hard_votes(generator: Generator) -> Finding:
    problem, pseudo_labels, _ = draw(generator)
    labels = problem.label_probabilities.multinomial(50, replacement=True, generator=generator)
    ensemble = one_hot(labels, problem.num_classes).mean(dim=1)
    terms = neighborhood(problem, pseudo_labels, ensemble, 8, 0.1)
    divergence = teacher_divergence(problem, ensemble)
    bound = float(terms.ratio_bound(divergence, terms.teacher_bias))
    return Finding(
        "the ratio's bound rewards a good ensemble of hard predictions (Eq. 2)",
        "Theorem 3.2, Eq. 8",
        bound < 1,
        {
            "share of points with a class never voted": float((ensemble == 0).any(dim=1).double().mean()),
            "g^KL": float(divergence),
            "bound": bound,
            "ratio": float(terms.ratio),
        },
        "50 votes from the true p(Y|x): one class without a vote makes g^KL infinite and the bound 1",
    )


def pinsker_with_counts(generator: Generator) -> Finding:
    problem, _, ensemble = draw(generator)
    votes = 10 * ensemble
    distance = float((problem.label_probabilities - votes).square().sum(dim=1).mean())
    divergence = 2 * float(teacher_divergence(problem, votes))
    return Finding(
        "E‖f(θ*) − f̄‖² ≤ 2 g^KL also for the unnormalised votes that the implementation uses",
        "proof of Theorem 3.2; Implementation details",
        distance <= divergence,
        {"E‖f(θ*) − f̄‖² with 10 votes": distance, "2 g^KL": divergence},
        "Pinsker's inequality is about distributions; with counts the divergence is negative",
    )


def gradient_of_the_smoothed_label(generator: Generator) -> Finding:
    problem, pseudo_labels, ensemble = draw(generator)
    normalised, counted = (_gradient_error(problem, pseudo_labels, q * ensemble, 0.3) for q in (1, 10))
    return Finding(
        "g_ξ = ∇l̃_ξ(θ) − λ ĝ_ξ, also with the unnormalised votes that the implementation uses",
        "Section 3.3, Setup",
        counted < TOLERANCE,
        {"difference with normalised votes": normalised, "with 10 votes": counted},
        "holds for distributions; otherwise the cross-entropy's gradient is (1 − λ + λQ) f(θ) − Ỹ",
    )


def votes_as_a_per_sample_weight(generator: Generator) -> Finding:
    smoothing, num_votes = 0.3, 10
    total = 1 - smoothing + smoothing * num_votes
    return Finding(
        "unnormalised votes with λ are normalised ones with a per-sample λ Q(x)",
        "Implementation details",
        total == 1,
        {
            "weight of Ỹ at λ = 0.3, Q = 10": total,
            "share of f̄ in it": smoothing * num_votes / total,
            "λ Q": smoothing * num_votes,
        },
        "Ŷ keeps 1 − λ, not 1 − λQ: the sample weighs 1 − λ + λQ, with smoothing λQ / (1 − λ + λQ)",
    )


def _misleading_smoothing(problem: LinearProblem, pseudo_labels: Tensor) -> float:
    """Smallest λ† of the ensembles that differ from the pseudo-labels at one point, in large minibatches."""
    num_points, num_classes = pseudo_labels.shape
    ensembles = pseudo_labels.repeat(num_points, num_classes, 1, 1)
    points = torch.arange(num_points)
    ensembles[points, :, points] = torch.eye(num_classes, dtype=pseudo_labels.dtype)
    terms = neighborhood(problem, pseudo_labels.expand_as(ensembles), ensembles, 1000, 0.1)
    return float(terms.optimal_smoothing.min())


def _gradient_error(problem: LinearProblem, pseudo_labels: Tensor, ensemble: Tensor, smoothing: float) -> float:
    """Largest difference between ∇ H(f, Ỹ) by automatic differentiation and ∇l̃ − λĝ, at the optimum."""
    parameters = problem.optimum.clone().requires_grad_()
    targets = torch.lerp(pseudo_labels, ensemble, smoothing)
    log_predictions = (problem.inputs @ parameters).log_softmax(dim=1)
    (exact,) = torch.autograd.grad(-(targets * log_predictions).sum(dim=1).mean(), parameters)
    student = problem.label_probabilities - pseudo_labels
    formula = problem.mean_gradient(student - smoothing * (ensemble - pseudo_labels))
    return float((exact - formula).abs().max())
