"""Theorem 3.2 and its corollary along runs."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from benchmarks.theory.linear_model import (
    LinearProblem,
    Neighborhood,
    Run,
    Setting,
    adapt,
    draw,
    optimal_smoothing,
    random_problem,
)
from benchmarks.theory.statements import DRAWS, TOLERANCE, Verdict, statement


@statement(
    "the loss of the linear softmax model can satisfy the PL condition at every θ with one μ > 0",
    "Assumption B.3",
    "the gradient is bounded while the loss grows; a μ exists on bounded sets, e.g. along a run",
)
def pl_condition(generator: Generator) -> Verdict:
    problem, _, _ = draw(generator)
    direction = torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
    distances = (1, 10, 100, 1000)
    constants = [float(problem.pl_constant(problem.optimum + distance * direction)) for distance in distances]
    return constants[-1] > constants[0] / 10, {
        f"largest μ at distance {d}": c for d, c in zip(distances, constants, strict=True)
    }


@statement(
    "the optimality gap along a run stays below the bounds of Theorem 3.2 and its corollary",
    "Theorem 3.2, Corollary 3.2.1",
    (
        "the bound is near only where all pseudo-labels are right; there AnCon is self-training. With uncertain labels "
        "the second term, 8C²/μ times the error rate, exceeds every gap that occurs"
    ),
)
def optimality_gap(generator: Generator) -> Verdict:
    (certain, _), _ = runs = _certain_run(generator), _run(generator)
    ratios = [
        float((run.gaps[1:].mean(dim=1) / bounds(mu)).max())
        for run, mu in runs
        for bounds in (run.step_bounds, run.corollary_bounds)
    ]
    return max(ratios) <= 1, {
        "gap / bound, largest of an outer step, labels nearly certain": ratios[0],
        "of a whole run": ratios[1],
        "of an outer step, labels uncertain": ratios[2],
        "of a whole run, uncertain": ratios[3],
        "largest |λ†| where they are certain": float(certain.smoothing.abs().max()),
    }


@statement(
    "applying Theorem 3.2 T̂ times gives the corollary's bound",
    "Corollary 3.2.1",
    "the first gap shrinks T·T̂ times in the recursion, T(T̂ − 1) times as printed: valid, and looser",
)
def exponent_of_the_corollary(generator: Generator) -> Verdict:
    run, mu = _certain_run(generator)
    recursive, printed = float(run.gaps[0].mean()), float(run.corollary_bounds(mu)[-1])
    for increment in run.increments(mu).tolist():
        recursive = run.shrink(mu) * recursive + increment
    return abs(printed - recursive) < TOLERANCE, {
        "bound as printed": printed,
        "by the recursion": recursive,
        "gap of the run": float(run.gaps[-1].mean()),
    }


@statement(
    "the bounds stay below log K, the loss of a guess, at Table 1's error rates",
    "Theorem 3.2, second term",
    f"{DRAWS} random problems; μ ≤ L ≤ C²/2, so that 8C²/μ is at least 16 whatever the problem",
    claimed=False,
)
def bias_of_the_pseudo_label(generator: Generator) -> Verdict:
    coefficients = []
    for _ in range(DRAWS):
        problem, _, _ = draw(generator)
        shift = torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
        coefficients.append(8 * problem.radius**2 / float(problem.pl_constant(problem.optimum + shift)))
    office_home, visda = (min(coefficients) * (1 - accuracy) for accuracy in (0.6155, 0.6777))
    return office_home < math.log(65) and visda < math.log(12), {
        "smallest 8C²/μ": min(coefficients),
        "second term for OfficeHome": office_home,
        "log K": math.log(65),
        "for VisDA": visda,
        "its log K": math.log(12),
    }


@statement(
    "AnCon with λ† ends no worse than self-training",
    "after Theorem 3.2",
    "seen in these runs, not proven: N(λ†) ≤ N(0) compares upper bounds, and λ† needs the labels",
)
def better_than_self_training(generator: Generator) -> Verdict:
    differences, harmed, beaten = [], 0, 0
    for _ in range(8):
        seed = int(torch.randint(2**31, (), generator=generator))
        start, optimal = _gaps(seed, optimal_smoothing)
        plain, fixed = (
            _gaps(seed, lambda terms, lam=lam: torch.full_like(terms.alignment, lam))[1] for lam in (0, 0.3)
        )
        differences.append(optimal - plain)
        harmed += optimal > start
        beaten += fixed < optimal - TOLERANCE
    return max(differences) <= 1e-3, {
        "largest difference of the gaps": max(differences),
        "smallest": min(differences),
        "of 8 problems, those where AnCon ends worse than it started": harmed,
        "and where λ = 0.3 ends better than λ†": beaten,
    }


def _certain_run(generator: Generator) -> tuple[Run, float]:
    """A run where p(Y|x) names one class at every point, from parameters that know it but are not sure, and its μ."""
    optimum = 40 * torch.randn(2, 3, generator=generator, dtype=torch.float64)
    inputs = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    certain = (inputs @ optimum).softmax(dim=1).amax(dim=1) > 0.9999
    problem = LinearProblem(inputs[certain][:24], optimum)
    start, seed = 0.03 * optimum, int(torch.randint(2**31, (), generator=generator))
    mu = float(problem.pl_constant(start))
    while True:
        setting = Setting(6, 100, 8, problem.largest_learning_rate(8, mu), runs=32)
        run = adapt(problem, start, setting, Generator().manual_seed(seed))
        if run.pl_constant >= mu:
            return run, mu
        mu = 0.9 * run.pl_constant


def _run(
    generator: Generator, choose_smoothing: Callable[[Neighborhood], Tensor] = optimal_smoothing
) -> tuple[Run, float]:
    """A run from parameters off the optimum, with a μ that holds along it and the largest γ it allows."""
    problem = random_problem(24, 2, 3, generator, scale=2.0)
    shift = 2 * torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
    way = problem.optimum + torch.linspace(0.05, 1, 20, dtype=torch.float64)[:, None, None] * shift
    mu = 0.3 * float(problem.pl_constant(way).min())
    setting = Setting(6, 100, 8, problem.largest_learning_rate(8, mu), runs=32)
    return adapt(problem, way[-1], setting, generator, choose_smoothing), mu


def _gaps(seed: int, choose_smoothing: Callable[[Neighborhood], Tensor]) -> tuple[float, float]:
    """Mean optimality gap at the start and at the end of a run."""
    gaps = _run(Generator().manual_seed(seed), choose_smoothing)[0].gaps.mean(dim=1)
    return float(gaps[0]), float(gaps[-1])
