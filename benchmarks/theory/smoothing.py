"""Theorem 3.2: the smoothing λ† and the size of the neighbourhood that it leaves."""

import torch
from torch import Generator, Tensor

from benchmarks.theory.linear_model import (
    LinearProblem,
    draw,
    neighborhood,
    one_hot,
    printed_teacher_bias,
    teacher_divergence,
)
from benchmarks.theory.statements import DRAWS, TOLERANCE, Verdict, statement


@statement(
    "λ† minimises N(λ), N(λ†)/N(0) is as printed, and at most 1",
    "Theorem 3.2, Lemma B.6",
    f"{DRAWS} random problems",
)
def optimal_smoothing_minimises(generator: Generator) -> Verdict:
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
    return max(excess) <= 1 + TOLERANCE and max(lemma_errors) < TOLERANCE and max(ratios) <= 1, {
        "largest N(λ†)/N(λ)": max(excess),
        "largest N(λ†)/N(0)": max(ratios),
        "smallest": min(ratios),
    }


@statement(
    "λ† is a λ ∈ [0, 1] of Eq. 1",
    "Theorem 3.2, Eq. 1",
    "λ† grows without limit as f̄ approaches Ŷ and can be negative; clipped to [0, 1], N still shrinks",
)
def optimal_smoothing_is_a_weight(generator: Generator) -> Verdict:
    problem, pseudo_labels, _ = draw(generator)
    numbers = {}
    for share in (1.0, 0.01, 0.0001):
        ensemble = torch.lerp(pseudo_labels, problem.label_probabilities, share)
        terms = neighborhood(problem, pseudo_labels, ensemble, 8, 0.1)
        numbers[f"λ† with f̄ {share:g} of the way from Ŷ to p(Y|x)"] = float(terms.optimal_smoothing)
    smallest = min(_misleading_smoothing(*draw(generator)[:2]) for _ in range(DRAWS))
    return max(numbers.values()) <= 1 and smallest >= 0, {**numbers, "smallest λ† with f̄ wrong at one point": smallest}


@statement(
    "E⟨∇l̃_ξ(θ*), ĝ_ξ⟩ ≥ 0 says that the teacher is sufficiently good",
    "Theorem 3.2",
    (
        "the worst teacher always names the least likely class; per sample any teacher passes, since the product is at "
        "least (1 − p_Ŷ)(1 − f̄_Ŷ) ‖x‖²"
    ),
)
def alignment_means_a_good_teacher(generator: Generator) -> Verdict:
    passed = dict.fromkeys((1, 8, 64), 0)
    for _ in range(DRAWS):
        problem, pseudo_labels, _ = draw(generator)
        worst = one_hot(problem.label_probabilities.argmin(dim=1), problem.num_classes)
        for batch_size in passed:
            alignment = neighborhood(problem, pseudo_labels, worst, batch_size, 0.1).alignment
            passed[batch_size] += bool(alignment >= 0)
    return max(passed.values()) == 0, {
        f"share of worst teachers that pass, b = {size}": count / DRAWS for size, count in passed.items()
    }


@statement(
    "N(λ†)/N(0) ≤ min(1, 2 min(1, C² g^KL / σ*σ) + 2 C² g^C / Lγσ²)",
    "Theorem 3.2, Eq. 8",
    "x = ±1 with f̄ = f(θ*); the last step bounds ‖E[X(f̄ − Ŷ)]‖ by C‖E[f̄ − Ŷ]‖, which is not so",
)
def printed_ratio_bound(generator: Generator) -> Verdict:
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
    return bool(terms.ratio <= bound + TOLERANCE), {
        "ratio": float(terms.ratio),
        "bound": float(bound),
        "‖ĝ‖²": float(terms.teacher_bias),
        "C² g^C": float(printed),
        "share of random problems with ‖ĝ‖² > C² g^C": exceeded / DRAWS,
    }


@statement(
    "Eq. 8 with ‖ĝ‖² in place of C² g^C, as one line before in the proof",
    "proof of Theorem 3.2",
    "random problems with a non-negative alignment and a soft, normalised f̄",
)
def corrected_ratio_bound(generator: Generator) -> Verdict:
    excess = []
    for spread in torch.logspace(-2, 0.5, DRAWS).tolist():
        problem, pseudo_labels, ensemble = draw(generator, spread)
        terms = neighborhood(problem, pseudo_labels, ensemble, 8, 10.0)
        if terms.alignment >= 0:
            bound = terms.ratio_bound(teacher_divergence(problem, ensemble), terms.teacher_bias)
            excess.append(float(terms.ratio - bound))
    return max(excess) <= TOLERANCE, {"largest ratio − bound": max(excess), "problems": len(excess)}


@statement(
    "where the marginal of the pseudo-labels does not change, changing w hardly changes g^C",
    "after Theorem 3.2",
    (
        "two steps with the same pseudo-labels, permuted among 64 samples; w(x) picks one of them for each, so that a "
        "single w for all x would leave g^C = 0"
    ),
)
def weights_and_the_marginal(generator: Generator) -> Verdict:
    before = torch.randint(4, (64,), generator=generator)
    now = before[torch.randperm(64, generator=generator)]
    random = [
        _marginal_distance(torch.where(torch.rand(64, generator=generator) < 0.5, before, now), now)
        for _ in range(DRAWS)
    ]
    one_class = _marginal_distance(torch.where(before == 0, before, now), now)
    return max(*random, one_class) < 0.01, {
        "total variation of the two marginals": float((before.bincount() - now.bincount()).abs().sum()) / 128,
        "largest g^C with w(x) drawn at random": max(random),
        "with w(x) that prefers votes for one class": one_class,
    }


@statement(
    "the ratio's bound rewards a good ensemble of hard predictions (Eq. 2)",
    "Theorem 3.2, Eq. 8",
    "50 votes from the true p(Y|x): one class without a vote makes g^KL infinite and the bound 1",
    claimed=False,
)
def informative_with_hard_votes(generator: Generator) -> Verdict:
    problem, pseudo_labels, _ = draw(generator)
    labels = problem.label_probabilities.multinomial(50, replacement=True, generator=generator)
    ensemble = one_hot(labels, problem.num_classes).mean(dim=1)
    terms = neighborhood(problem, pseudo_labels, ensemble, 8, 0.1)
    divergence = teacher_divergence(problem, ensemble)
    bound = float(terms.ratio_bound(divergence, terms.teacher_bias))
    return bound < 1, {
        "share of points with a class never voted": float((ensemble == 0).any(dim=1).double().mean()),
        "g^KL": float(divergence),
        "bound": bound,
        "ratio": float(terms.ratio),
    }


@statement(
    "E‖f(θ*) − f̄‖² ≤ 2 g^KL",
    "proof of Theorem 3.2",
    f"{DRAWS} soft, normalised ensembles, from near f(θ*) to far off",
)
def pinsker(generator: Generator) -> Verdict:
    ratios = []
    for spread in torch.logspace(-2, 0.5, DRAWS).tolist():
        problem, _, ensemble = draw(generator, spread)
        ratios.append(_squared_distance(problem, ensemble) / (2 * float(teacher_divergence(problem, ensemble))))
    return max(ratios) <= 1, {"largest ratio": max(ratios), "smallest": min(ratios)}


@statement(
    "E‖f(θ*) − f̄‖² ≤ 2 g^KL with the unnormalised votes that the implementation uses",
    "Implementation details",
    "Pinsker's inequality is about distributions; with counts the divergence is negative",
    claimed=False,
)
def pinsker_with_counts(generator: Generator) -> Verdict:
    problem, _, ensemble = draw(generator)
    votes = 10 * ensemble
    distance, divergence = _squared_distance(problem, votes), 2 * float(teacher_divergence(problem, votes))
    return distance <= divergence, {"E‖f(θ*) − f̄‖² with 10 votes": distance, "2 g^KL": divergence}


@statement(
    "g_ξ = ∇l̃_ξ(θ) − λ ĝ_ξ",
    "Section 3.3, Setup",
    "against automatic differentiation of H(f, Ỹ), with a normalised f̄ and λ = 0.3",
)
def gradient_of_the_smoothed_label(generator: Generator) -> Verdict:
    problem, pseudo_labels, ensemble = draw(generator)
    difference = _gradient_error(problem, pseudo_labels, ensemble, 0.3)
    return difference < TOLERANCE, {"largest difference": difference}


@statement(
    "g_ξ = ∇l̃_ξ(θ) − λ ĝ_ξ with the unnormalised votes that the implementation uses",
    "Implementation details",
    "the cross-entropy's gradient is then (1 − λ + λQ) f(θ) − Ỹ",
    claimed=False,
)
def gradient_with_counts(generator: Generator) -> Verdict:
    problem, pseudo_labels, ensemble = draw(generator)
    difference = _gradient_error(problem, pseudo_labels, 10 * ensemble, 0.3)
    return difference < TOLERANCE, {"largest difference with 10 votes": difference}


@statement(
    "unnormalised votes with λ are normalised ones with a per-sample λ Q(x)",
    "Implementation details",
    "Ŷ keeps 1 − λ, not 1 − λQ, and a sample's weight grows with its votes; 1 to 19 of them, λ = 0.3",
)
def votes_as_a_per_sample_weight(generator: Generator) -> Verdict:
    problem, pseudo_labels, ensemble = draw(generator)
    num_votes = torch.randint(1, 20, (len(ensemble), 1), generator=generator).double()
    smoothing = 0.3
    mass = 1 - smoothing + smoothing * num_votes
    counted = _gradient(problem, torch.lerp(pseudo_labels, num_votes * ensemble, smoothing))
    read = _gradient(problem, torch.lerp(pseudo_labels, ensemble, smoothing * num_votes))
    weighed = _gradient(problem, mass * torch.lerp(pseudo_labels, ensemble, smoothing * num_votes / mass))
    difference = float((counted - read).norm() / counted.norm())
    return difference < TOLERANCE, {
        "relative difference of the gradients": difference,
        "with weight 1 − λ + λQ and smoothing λQ / (1 − λ + λQ)": float((counted - weighed).norm()),
    }


def _misleading_smoothing(problem: LinearProblem, pseudo_labels: Tensor) -> float:
    """Smallest λ† of the ensembles that differ from the pseudo-labels at one point, in large minibatches."""
    num_points, num_classes = pseudo_labels.shape
    ensembles = pseudo_labels.repeat(num_points, num_classes, 1, 1)
    points = torch.arange(num_points)
    ensembles[points, :, points] = torch.eye(num_classes, dtype=pseudo_labels.dtype)
    terms = neighborhood(problem, pseudo_labels.expand_as(ensembles), ensembles, 1000, 0.1)
    return float(terms.optimal_smoothing.min())


def _gradient(problem: LinearProblem, targets: Tensor) -> Tensor:
    """∇ H(f, Ỹ) at the optimum by automatic differentiation."""
    parameters = problem.optimum.clone().requires_grad_()
    log_predictions = (problem.inputs @ parameters).log_softmax(dim=1)
    return torch.autograd.grad(-(targets * log_predictions).sum(dim=1).mean(), parameters)[0]


def _gradient_error(problem: LinearProblem, pseudo_labels: Tensor, ensemble: Tensor, smoothing: float) -> float:
    """Largest difference between ∇ H(f, Ỹ) and ∇l̃ − λĝ, at the optimum."""
    exact = _gradient(problem, torch.lerp(pseudo_labels, ensemble, smoothing))
    student = problem.label_probabilities - pseudo_labels
    formula = problem.mean_gradient(student - smoothing * (ensemble - pseudo_labels))
    return float((exact - formula).abs().max())


def _squared_distance(problem: LinearProblem, ensemble: Tensor) -> float:
    return float((problem.label_probabilities - ensemble).square().sum(dim=1).mean())


def _marginal_distance(votes: Tensor, pseudo_labels: Tensor) -> float:
    """g^C of one vote a sample, of four classes."""
    return float((one_hot(votes, 4) - one_hot(pseudo_labels, 4)).mean(dim=0).square().sum())
