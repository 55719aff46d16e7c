"""Which printed statements of the paper hold numerically, each with numbers that can be reproduced.

Every statement is put to a test of its own, on random problems drawn from one generator or on the smallest
example that decides it. In short, with the numbers of ``torch.Generator().manual_seed(0)``:

- Theorem 3.1 holds for independent, unequally accurate votes (over 100 random lists the exact error is at
  most 0.56 of the bound), and ξ is what the Chernoff bound gives. Its reading does not: votes of 90, 55 and
  55 % err at 0.252, the first alone at 0.1; p̄ = 1/2 + 1/Q leaves an error of 0.475 at Q = 1001; E log f̄_Y
  tends to log p̄, not to its maximum.
- λ† minimises N(λ) and N(λ†) ≤ N(0), as printed. λ† is any real number: 221 close to Ŷ, −0.06 at a wrong
  vote.
- The upper bound of N(λ†)/N(0), Eq. 8, fails: 0 against a ratio of 0.976 for two mirrored points. Its last
  step is wrong (C² g^C is below ‖ĝ‖² in 66 of 100 random problems); with ‖ĝ‖² it holds. With hard votes
  g^KL is infinite, and the bound 1, as soon as a class of a point has no vote.
- The identity g_ξ = ∇l̃_ξ − λ ĝ_ξ and Pinsker's inequality need a normalised f̄, which the implementation
  has not.
- Theorem 3.2 and its corollary hold along runs, where some μ holds; no μ holds at every θ. They say little:
  their second term is at least 16 times the error rate of the pseudo-labels, against a loss of log K for a
  guess.
- The first exponent of the corollary is T(T̂−1) where the recursion gives T·T̂: valid, looser.
- The printed ECE drops its first bin; the printed Corr-C is a matrix; the printed Ent prefers collapse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from tllib_ancon.evaluation import expected_calibration_error, reliability_diagram_data
from tllib_ancon.linear_theory import (
    LinearProblem,
    Neighborhood,
    Setting,
    Trajectory,
    adapt,
    corollary_bound,
    neighborhood,
    no_smoothing,
    one_hot,
    optimal_smoothing,
    printed_teacher_bias,
    random_problem,
    teacher_divergence,
)
from tllib_ancon.selection import marginal_entropy
from tllib_ancon.theory import ensemble_error_bound, majority_error, xi

DRAWS = 100
TOLERANCE = 1e-9
MARKDOWN_CELL = str.maketrans({"|": r"\|"})


@dataclass(frozen=True)
class Finding:
    """One statement of the paper put to the test.

    Args:
        statement: what the paper prints or says.
        where: its place in the paper.
        holds: whether it holds numerically.
        numbers: what was measured, by name.
        note: what the numbers mean; what holds instead, where the statement does not.
    """

    statement: str
    where: str
    holds: bool
    numbers: dict[str, float]
    note: str


def findings(generator: Generator) -> list[Finding]:
    """Puts every statement to its test.

    Args:
        generator (torch.Generator): of all random problems; the same seed gives the same numbers.

    Outputs: one finding per statement, in the paper's order.
    """
    return [test(generator) for test in TESTS]


def findings_table(results: Sequence[Finding]) -> str:
    """The findings as a Markdown table."""
    lines = ["| statement | where | holds | numbers | note |", "|---|---|---|---|---|"]
    for result in results:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in result.numbers.items())
        cells = (result.statement, result.where, "yes" if result.holds else "**no**", numbers, result.note)
        lines.append(f"| {' | '.join(cell.translate(MARKDOWN_CELL) for cell in cells)} |")
    return "\n".join(lines)


def rate_is_chernoff(generator: Generator) -> Finding:
    z = torch.linspace(0.5, 1, 501, dtype=torch.float64)
    chernoff = -2 * (0.5 - z - 0.5 * (0.5 / z).log())
    difference = float((chernoff - xi(z)).abs().max())
    return Finding(
        "ξ(z) = 2z − 1 − log 2z is the rate the Chernoff bound of the lemma gives",
        "Theorem 3.1",
        difference < TOLERANCE,
        {"largest difference": difference, "ξ(0.5)": float(xi(0.5))},
        "ξ is positive on (0.5, 1], and 0 at 0.5",
    )


def ensemble_error(generator: Generator) -> Finding:
    slack = []
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
    bound = float(ensemble_error_bound(100, 0.7))
    return Finding(
        "the error bound also holds for votes that depend on each other (not claimed)",
        "Theorem 3.1, assumption",
        bound >= 0.3,
        {"error of 100 equal votes of accuracy 0.7": 0.3, "bound": bound},
        "the independence that is assumed is needed; one model's predictions over epochs repeat each other",
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


def optimal_smoothing_minimises(generator: Generator) -> Finding:
    offsets = torch.linspace(-1, 1, 201, dtype=torch.float64)
    excess, ratios, lemma_errors = [], [], []
    for _ in range(DRAWS):
        problem, pseudo_labels, ensemble = _draw(generator)
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
    problem, pseudo_labels, _ = _draw(generator)
    numbers = {}
    for share in (1.0, 0.01, 0.0001):
        ensemble = torch.lerp(pseudo_labels, problem.label_probabilities, share)
        terms = neighborhood(problem, pseudo_labels, ensemble, 8, 0.1)
        numbers[f"λ† with f̄ {share:g} of the way from Ŷ to p(Y|x)"] = float(terms.optimal_smoothing)
    smallest = min(_misleading_smoothing(*_draw(generator)[:2]) for _ in range(DRAWS))
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
        problem, pseudo_labels, _ = _draw(generator)
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
        other, labels, teacher = _draw(generator)
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
        problem, pseudo_labels, ensemble = _draw(generator, spread)
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
    problem, pseudo_labels, _ = _draw(generator)
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
    problem, _, ensemble = _draw(generator)
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
    problem, pseudo_labels, ensemble = _draw(generator)
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


def pl_condition(generator: Generator) -> Finding:
    problem, _, _ = _draw(generator)
    direction = torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
    distances = (1, 10, 100, 1000)
    constants = [float(problem.pl_constant(problem.optimum + distance * direction)) for distance in distances]
    return Finding(
        "the loss of the linear softmax model can satisfy the PL condition at every θ with one μ > 0",
        "Assumption B.3",
        constants[-1] > constants[0] / 10,
        {f"largest μ at distance {d}": c for d, c in zip(distances, constants, strict=True)},
        "the gradient is bounded while the loss grows; a μ exists on bounded sets, e.g. along a run",
    )


def optimality_gap(generator: Generator) -> Finding:
    problem, setting, mu, run = _run(generator)
    gaps, bounds = run.gaps.mean(dim=1), corollary_bound(problem, setting, run, mu)
    shrink = (1 - mu * setting.learning_rate) ** setting.inner_steps
    return Finding(
        "the optimality gap along a run stays below the bounds of Theorem 3.2 and its corollary",
        "Theorem 3.2, Corollary 3.2.1",
        bool((gaps[1:] <= bounds).all()),
        {
            "gap at the start": float(gaps[0]),
            "after one outer step": float(gaps[1]),
            "bound of it": float(bounds[0] - (1 - shrink) * gaps[0]),
            "at the end": float(gaps[-1]),
            "corollary's bound of it": float(bounds[-1]),
        },
        f"{setting.outer_steps} outer × {setting.inner_steps} inner steps at the largest γ allowed, with λ†",
    )


def exponent_of_the_corollary(generator: Generator) -> Finding:
    shrink, outer_steps, inner_steps = 0.999, 6, 100
    printed, recursive = (shrink ** (inner_steps * m) for m in (outer_steps - 1, outer_steps))
    return Finding(
        "applying Theorem 3.2 T̂ times shrinks the first gap by (1 − μγ)^(T(T̂−1))",
        "Corollary 3.2.1",
        printed == recursive,
        {"printed factor": printed, "factor of the recursion": recursive},
        "μγ = 0.001, T = 100, T̂ = 6: the recursion gives T·T̂; the printed bound is valid and looser",
    )


def bias_of_the_pseudo_label(generator: Generator) -> Finding:
    coefficients = []
    for _ in range(DRAWS):
        problem, _, _ = _draw(generator)
        shift = torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
        coefficients.append(8 * problem.radius**2 / float(problem.pl_constant(problem.optimum + shift)))
    office_home, visda = 1 - 0.6155, 1 - 0.6777
    return Finding(
        "the bounds stay below log K, the loss of a guess, at Table 1's error rates (not claimed)",
        "Theorem 3.2, second term",
        16 * office_home < math.log(65) and 16 * visda < math.log(12),
        {
            "smallest 8C²/μ of random problems": min(coefficients),
            "smallest possible": 16.0,
            "second term for OfficeHome (log K = 4.17) at least": 16 * office_home,
            "for VisDA (log K = 2.48) at least": 16 * visda,
        },
        "μ ≤ L ≤ C²/2, so the second term is at least 16 times the error rate of the pseudo-labels",
    )


def better_than_self_training(generator: Generator) -> Finding:
    differences, harmed, beaten = [], 0, 0
    for _ in range(8):
        seed = int(torch.randint(2**31, (), generator=generator))
        start, optimal = _gaps(seed, optimal_smoothing)
        _, plain = _gaps(seed, no_smoothing)
        _, fixed = _gaps(seed, lambda terms: torch.full_like(terms.alignment, 0.3))
        differences.append(optimal - plain)
        harmed += optimal > start
        beaten += fixed < optimal - TOLERANCE
    return Finding(
        "AnCon with λ† ends no worse than self-training",
        "after Theorem 3.2",
        max(differences) <= 1e-3,
        {
            "largest difference of the gaps": max(differences),
            "smallest": min(differences),
            "of 8 problems, those where AnCon ends worse than it started": harmed,
            "and where λ = 0.3 ends better than λ†": beaten,
        },
        "seen in these runs, not proven: N(λ†) ≤ N(0) compares upper bounds, and λ† needs the labels",
    )


def calibration_bins(generator: Generator) -> Finding:
    logits = 0.5 * torch.randn(1000, 100, generator=generator)
    probabilities, labels = logits.softmax(dim=1), torch.randint(1, (1000,), generator=generator)
    diagram = reliability_diagram_data(probabilities, labels)
    gaps = (diagram.accuracy - diagram.confidence).abs().nan_to_num() * diagram.counts / diagram.counts.sum()
    whole, printed = expected_calibration_error(probabilities, labels), float(gaps[1:].sum())
    return Finding(
        "the bins g/G ≤ c < (g + 1)/G for g = 1, …, G cover all confidences",
        "Definition of ECE",
        whole == printed,
        {"ECE over [0, 1]": whole, "printed ECE": printed},
        "the first bin is dropped, here of 100 classes at odds near 1/100; G is not stated",
    )


def correlation_criterion(generator: Generator) -> Finding:
    collapsed, diverse = torch.eye(4)[[0, 0, 0, 0]], torch.eye(4)
    correlation = diverse.T @ diverse
    printed = correlation / (correlation.norm() / 4**0.5)
    return Finding(
        "Corr-C and Ent are numbers of which lower is better",
        "Definitions of model selection criteria",
        printed.numel() == 1 and marginal_entropy(collapsed) > marginal_entropy(diverse),
        {
            "entries of the printed Corr-C, K = 4": printed.numel(),
            "printed Ent of one class for all": marginal_entropy(collapsed),
            "of all classes evenly": marginal_entropy(diverse),
        },
        "Tu et al. compare the matrix with I/√K; H(E f) prefers collapse, Morerio et al. use E H(f)",
    )


TESTS: tuple[Callable[[Generator], Finding], ...] = (
    rate_is_chernoff,
    ensemble_error,
    more_votes_fewer_errors,
    correct_in_the_limit,
    dependent_votes,
    votes_maximise_likelihood,
    optimal_smoothing_minimises,
    optimal_smoothing_is_a_weight,
    alignment_means_a_good_teacher,
    printed_ratio_bound,
    corrected_ratio_bound,
    informative_with_hard_votes,
    pinsker_with_counts,
    gradient_of_the_smoothed_label,
    votes_as_a_per_sample_weight,
    pl_condition,
    optimality_gap,
    exponent_of_the_corollary,
    bias_of_the_pseudo_label,
    better_than_self_training,
    calibration_bins,
    correlation_criterion,
)


def _draw(generator: Generator, spread: float = 1.0) -> tuple[LinearProblem, Tensor, Tensor]:
    """A random problem, pseudo-labels of parameters off its optimum, and a soft ensemble around p(Y|x)."""
    problem = random_problem(16, 3, 4, generator)
    shift = 2 * torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(problem.label_probabilities.shape, generator=generator, dtype=torch.float64)
    ensemble = (problem.label_probabilities.log() + spread * noise).softmax(dim=1)
    return problem, problem.pseudo_labels(problem.optimum + shift), ensemble


def _run(
    generator: Generator, choose_smoothing: Callable[[Neighborhood], Tensor] = optimal_smoothing
) -> tuple[LinearProblem, Setting, float, Trajectory]:
    """A run from parameters off the optimum, with a μ that holds along it and the largest γ it allows."""
    problem = random_problem(24, 2, 3, generator, scale=2.0)
    shift = 2 * torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
    way = problem.optimum + torch.linspace(0.05, 1, 20, dtype=torch.float64)[:, None, None] * shift
    mu = 0.3 * float(problem.pl_constant(way).min())
    setting = Setting(6, 100, 8, problem.largest_learning_rate(8, mu), runs=32)
    return problem, setting, mu, adapt(problem, way[-1], setting, generator, choose_smoothing)


def _gaps(seed: int, choose_smoothing: Callable[[Neighborhood], Tensor]) -> tuple[float, float]:
    """Mean optimality gap at the start and at the end of a run."""
    *_, run = _run(Generator().manual_seed(seed), choose_smoothing)
    return float(run.gaps[0].mean()), float(run.gaps[-1].mean())


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
