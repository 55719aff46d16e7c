from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch
from torch import Tensor

from benchmarks.theory.linear_model import (
    LinearProblem,
    Setting,
    adapt,
    corollary_bound,
    neighborhood,
    no_smoothing,
    optimal_smoothing,
    printed_teacher_bias,
    random_problem,
    step_bounds,
    teacher_divergence,
)
from tllib_ancon.errors import UserError
from tllib_ancon.self_training.ensemble import TemporalEnsemble

SEEDS = range(20)


def draw(seed: int, num_points: int = 16, dimension: int = 3, num_classes: int = 4) -> tuple:
    """A random problem, parameters away from its optimum, pseudo-labels there, and a soft ensemble."""
    generator = torch.Generator().manual_seed(seed)
    problem = random_problem(num_points, dimension, num_classes, generator)
    parameters = problem.optimum + 2 * torch.randn(dimension, num_classes, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_points, num_classes, generator=generator, dtype=torch.float64)
    ensemble = (problem.label_probabilities.log() + noise).softmax(dim=1)
    return problem, parameters, problem.pseudo_labels(parameters), ensemble


def minibatch_gradients(problem: LinearProblem, residuals: Tensor, batch_size: int) -> Tensor:
    """The gradient of every possible minibatch, (n^b, d, K)."""
    per_sample = torch.einsum("nd,nk->ndk", problem.inputs, residuals)
    batches = itertools.product(range(len(per_sample)), repeat=batch_size)
    return torch.stack([per_sample[list(batch)].mean(dim=0) for batch in batches])


def squared_norm(gradient: Tensor) -> Tensor:
    return gradient.square().sum(dim=(-2, -1))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_gap_and_pl_constant_are_those_of_the_cross_entropy(seed: int) -> None:
    problem, parameters, _, _ = draw(seed)
    target = problem.label_probabilities

    def loss(theta: Tensor) -> Tensor:
        rows = zip(problem.inputs @ theta, target, strict=True)
        return sum(-(p * z.log_softmax(0)).sum() for z, p in rows) / len(problem.inputs)

    theta = parameters.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(theta), theta)
    gradient = problem.mean_gradient(problem.predict(parameters) - target)
    torch.testing.assert_close(gradient, expected)
    gap = loss(parameters) - loss(problem.optimum)
    torch.testing.assert_close(problem.gap(parameters), gap)
    torch.testing.assert_close(problem.pl_constant(parameters), squared_norm(expected) / (2 * gap))
    assert problem.gap(problem.optimum) == pytest.approx(0, abs=1e-14)


def test_quantities_of_many_parameters_are_those_of_each() -> None:
    problem, parameters, _, _ = draw(0)
    many = torch.stack([parameters, problem.optimum, 2 * parameters])
    for function in (problem.gap, problem.error, problem.pseudo_labels, problem.predict):
        torch.testing.assert_close(function(many), torch.stack([function(theta) for theta in many]))


def test_error_is_the_chance_that_a_pseudo_label_is_wrong() -> None:
    problem, parameters, _, _ = draw(1)
    rows = zip(problem.predict(parameters).tolist(), problem.label_probabilities.tolist(), strict=True)
    naive = sum(1 - p[f.index(max(f))] for f, p in rows) / len(problem.inputs)
    assert float(problem.error(parameters)) == pytest.approx(naive)


@pytest.mark.parametrize("seed", SEEDS)
def test_smoothness_and_expected_smoothness_hold(seed: int) -> None:
    problem, first, _, _ = draw(seed)
    _, second, _, _ = draw(seed + 1000)
    target = problem.label_probabilities
    gradient = problem.mean_gradient(problem.predict(first) - target)
    linear = problem.gap(first) + (gradient * (second - first)).sum()
    assert problem.gap(second) <= linear + problem.smoothness / 2 * squared_norm(second - first) + 1e-12
    residuals = problem.predict(first) - problem.predict(problem.optimum)
    for batch_size in (1, 3, 100):
        moment = problem.minibatch_inner_product(residuals, residuals, batch_size)
        assert moment <= 2 * problem.expected_smoothness(batch_size) * problem.gap(first) + 1e-12


def test_no_smaller_smoothness_would_do() -> None:
    """Two classes at even odds curve by exactly 1/2 along the direction that separates them."""
    problem = LinearProblem(torch.tensor([[1.0], [-1.0]]).double(), torch.zeros(1, 2).double())
    step = 1e-3 * torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    assert problem.smoothness == 0.5
    assert 2 * problem.gap(step) / squared_norm(step) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_minibatch_moments_are_exact(batch_size: int) -> None:
    problem, _, pseudo_labels, ensemble = draw(2, num_points=5)
    first, second = problem.label_probabilities - pseudo_labels, ensemble - pseudo_labels
    gradients = [minibatch_gradients(problem, residuals, batch_size) for residuals in (first, second)]
    expected = (gradients[0] * gradients[1]).sum(dim=(1, 2)).mean()
    torch.testing.assert_close(problem.minibatch_inner_product(first, second, batch_size), expected)


def naive_size(problem: LinearProblem, pseudo_labels: Tensor, ensemble: Tensor, gamma: float, lam: float) -> float:
    """N(λ) as printed in Theorem 3.2, over every minibatch of two."""
    student = minibatch_gradients(problem, problem.predict(problem.optimum) - pseudo_labels, 2)
    teacher = minibatch_gradients(problem, ensemble - pseudo_labels, 2)
    bias = lam**2 * squared_norm(teacher.mean(dim=0))
    return float(bias + problem.smoothness * gamma / 2 * squared_norm(student - lam * teacher).mean())


@pytest.mark.parametrize("seed", SEEDS)
def test_neighborhood_size_and_its_minimiser(seed: int) -> None:
    problem, _, pseudo_labels, ensemble = draw(seed, num_points=6)
    gamma = 10 ** (seed / 10 - 2)
    terms = neighborhood(problem, pseudo_labels, ensemble, 2, gamma)
    for lam in (-0.5, 0.0, 0.3, 1.7):
        expected = naive_size(problem, pseudo_labels, ensemble, gamma, lam)
        assert float(terms.size(lam)) == pytest.approx(expected, rel=1e-10)

    best = float(terms.optimal_smoothing)
    grid = best + torch.linspace(-2, 2, 4001, dtype=torch.float64)
    assert float(grid[terms.size(grid).argmin()]) == pytest.approx(best, abs=1e-3)
    lemma = 1 - terms.alignment**2 / (
        (terms.teacher_noise + 2 / (problem.smoothness * gamma) * terms.teacher_bias) * terms.noise
    )
    assert float(terms.ratio) == pytest.approx(float(lemma), abs=1e-12)
    assert terms.ratio <= 1


def test_an_ensemble_that_repeats_the_pseudo_labels_changes_nothing() -> None:
    problem, _, pseudo_labels, _ = draw(0)
    terms = neighborhood(problem, pseudo_labels, pseudo_labels, 4, 0.1)
    assert terms.optimal_smoothing == 0
    assert terms.ratio == 1


@pytest.mark.parametrize("seed", range(60))
def test_the_ratio_bound_holds_with_the_true_bias_of_the_teacher(seed: int) -> None:
    problem, _, pseudo_labels, _ = draw(seed)
    noise = torch.randn(problem.label_probabilities.shape, generator=torch.Generator().manual_seed(seed))
    for spread in (0.0, 0.01, 0.1, 1.0):
        ensemble = (problem.label_probabilities.log() + spread * noise).softmax(dim=1)
        for gamma in (0.01, 1.0, 100.0):
            terms = neighborhood(problem, pseudo_labels, ensemble, 4, gamma)
            if terms.alignment < 0:
                continue
            bound = terms.ratio_bound(teacher_divergence(problem, ensemble), terms.teacher_bias)
            assert terms.ratio <= bound + 1e-12


def test_the_printed_ratio_bound_fails_where_marginals_agree() -> None:
    """Two mirrored points: the marginals of f̄ = f(θ*) and of the pseudo-labels are both even."""
    problem = LinearProblem(torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([[1.0, -1.0]]).double())
    ensemble, pseudo_labels = problem.label_probabilities, problem.pseudo_labels(problem.optimum)
    terms = neighborhood(problem, pseudo_labels, ensemble, 2, 0.1)
    printed = printed_teacher_bias(problem, pseudo_labels, ensemble)
    assert printed == pytest.approx(0, abs=1e-30)
    assert terms.teacher_bias > 0.02
    divergence = teacher_divergence(problem, ensemble)
    assert terms.ratio > 0.9
    assert terms.ratio_bound(divergence, printed) == pytest.approx(0, abs=1e-12)
    assert terms.ratio_bound(divergence, terms.teacher_bias) >= terms.ratio


def test_one_missing_vote_makes_the_divergence_infinite() -> None:
    problem, _, pseudo_labels, _ = draw(0)
    assert teacher_divergence(problem, pseudo_labels).isinf()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_gradient_step_obeys_the_lemma(seed: int) -> None:
    """Minibatches of one, so that the expectation over them is a plain sum over the points."""
    problem, parameters, pseudo_labels, ensemble = draw(seed)
    mu = float(problem.pl_constant(parameters))
    gamma = problem.largest_learning_rate(1, mu)
    terms = neighborhood(problem, pseudo_labels, ensemble, 1, gamma)
    bias = squared_norm(problem.mean_gradient(pseudo_labels - problem.label_probabilities))
    assert bias <= 4 * problem.radius**2 * problem.error(parameters)
    for lam in (0.0, 0.3, 1.0, float(terms.optimal_smoothing)):
        residuals = problem.predict(parameters) - (1 - lam) * pseudo_labels - lam * ensemble
        after = parameters - gamma * minibatch_gradients(problem, residuals, 1)
        bound = (1 - gamma * mu) * problem.gap(parameters) + 2 * gamma * (bias + terms.size(lam))
        assert problem.gap(after).mean() <= bound


@functools.cache
def shifted_problem(seed: int, smoothing: object = optimal_smoothing) -> tuple:
    """A run of the three steps from parameters shifted away from the optimum, with an admissible γ."""
    generator = torch.Generator().manual_seed(seed)
    problem = random_problem(24, 2, 3, generator, scale=2.0)
    shift = 2 * torch.randn(2, 3, generator=generator, dtype=torch.float64)
    way = problem.optimum + torch.linspace(0.05, 1, 20, dtype=torch.float64)[:, None, None] * shift
    mu = 0.3 * float(problem.pl_constant(way).min())
    setting = Setting(5, 100, 8, problem.largest_learning_rate(8, mu), runs=16)
    return problem, setting, mu, adapt(problem, way[-1], setting, generator, smoothing)


@pytest.mark.parametrize("smoothing", [optimal_smoothing, no_smoothing])
@pytest.mark.parametrize("seed", range(5))
def test_theorem_3_2_and_its_corollary_hold_along_a_run(seed: int, smoothing: object) -> None:
    problem, setting, mu, run = shifted_problem(seed, smoothing)
    bounds = corollary_bound(problem, setting, run, mu)
    assert (run.gaps[1:].mean(dim=1) <= bounds).all()
    assert run.pl_constant >= mu

    steps = step_bounds(problem, setting, run, mu)
    assert (run.gaps[1:].mean(dim=1) <= steps).all()
    shrink = (1 - mu * setting.learning_rate) ** setting.inner_steps
    constant = 8 * problem.radius**2 / mu * run.errors[0, 0] + 2 / mu * run.sizes[0, 0]
    torch.testing.assert_close(steps[0], shrink * run.gaps[0, 0] + constant)


def test_corollary_bound_is_the_printed_formula() -> None:
    problem, setting, mu, run = shifted_problem(0)
    c, t = 1 - mu * setting.learning_rate, setting.inner_steps
    for m, bound in enumerate(corollary_bound(problem, setting, run, mu).tolist(), start=1):
        weights = [c ** (t * (m - 1 - j)) for j in range(m)]
        zeta = sum(c ** (t * i) for i in range(m))
        inner = [
            8 * problem.radius**2 / mu * float(run.errors[j].mean()) + 2 / mu * float(run.sizes[j].mean())
            for j in range(m)
        ]
        expectation = sum(w * v for w, v in zip(weights, inner, strict=True)) / sum(weights)
        start = float(run.gaps[0].mean())
        assert bound == pytest.approx(c ** (t * (m - 1)) * start + zeta * expectation)


def test_corollary_bound_refuses_constants_that_do_not_hold() -> None:
    problem, setting, mu, run = shifted_problem(0)
    for bound in (step_bounds, corollary_bound):
        with pytest.raises(UserError, match="does not hold along this trajectory"):
            bound(problem, setting, run, 2 * run.pl_constant)
        with pytest.raises(UserError, match="learning rate"):
            bound(problem, setting, run, mu / 2)


def test_adapt_is_ancon_with_normalised_votes_and_the_paper_s_convention() -> None:
    """The same run written out with the ensemble that training uses."""
    generator = torch.Generator().manual_seed(7)
    problem = random_problem(12, 2, 3, generator, scale=2.0)
    start = 2 * torch.randn(2, 3, generator=generator, dtype=torch.float64)
    setting = Setting(outer_steps=6, inner_steps=40, batch_size=4, learning_rate=1.0, runs=1)
    lam = 0.6
    run = adapt(
        problem,
        start,
        setting,
        torch.Generator().manual_seed(1),
        lambda terms: terms.noise.new_full((1,), lam),
    )

    minibatches = torch.Generator().manual_seed(1)
    ensemble = TemporalEnsemble(12, 3, beta=0.9, convention="paper", normalize=True)
    theta, gaps, indices = start, [float(problem.gap(start))], torch.arange(12)
    for _ in range(setting.outer_steps):
        logits = problem.inputs @ theta
        smooth = ensemble(indices, logits).double()
        hard = torch.eye(3, dtype=torch.float64)[logits.argmax(dim=1)]
        smooth = torch.where(smooth.sum(dim=1, keepdim=True) > 0, smooth, hard)
        targets = (1 - lam) * hard + lam * smooth
        for _ in range(setting.inner_steps):
            batch = torch.randint(12, (1, 4), generator=minibatches)[0]
            x = problem.inputs[batch]
            theta = theta - x.T @ ((x @ theta).softmax(dim=1) - targets[batch]) / 4
        gaps.append(float(problem.gap(theta)))
    assert run.gaps[:, 0].tolist() == pytest.approx(gaps, abs=1e-6)
    assert not torch.allclose(smooth, hard), "the ensemble never differed from the pseudo-labels"


def test_a_problem_needs_matching_shapes() -> None:
    with pytest.raises(UserError, match=r"expected \(n, d\) and \(d, K\)"):
        LinearProblem(torch.ones(3, 2), torch.ones(3, 2))


def test_random_problems_lie_on_the_unit_sphere_and_repeat() -> None:
    first, second = (random_problem(9, 3, 4, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.optimum, second.optimum)
    assert first.radius == pytest.approx(1)
    assert math.isclose(float(first.label_probabilities.sum()), 9)
    assert first.num_classes == 4
