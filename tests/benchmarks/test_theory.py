import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.theory.__main__ import TABLE, main
from benchmarks.theory.linear_model import (
    LinearProblem,
    Setting,
    adapt,
    draw,
    neighborhood,
    random_problem,
    teacher_divergence,
)
from benchmarks.theory.votes import ensemble_error_bound, majority_error, xi
from tllib_ancon.self_training.ensemble import TemporalEnsemble


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def test_the_command_writes_the_committed_statements_and_verdicts(tmp_path: Path, capsys) -> None:
    assert main(["--out", str(tmp_path / "theory.md")]) == 0
    written = (tmp_path / "theory.md").read_text()
    assert capsys.readouterr().out == written
    verdicts = [
        [line.split(" | ")[:3] if line.startswith("| ") else line for line in text.splitlines()]
        for text in (written, TABLE.read_text())
    ]
    assert verdicts[0] == verdicts[1]
    assert "What the paper says: 8 of 20 statements hold" in written
    assert "What it does not say: 0 of 5 statements hold" in written
    assert "nan" not in written


@pytest.mark.parametrize("accuracies", [[0.3], [1.0, 0.0], [0.9, 0.55, 0.55], [0.2, 0.9, 0.8, 0.6, 0.7]])
def test_the_majority_errs_as_often_as_all_outcomes_say(accuracies: list[float]) -> None:
    naive = sum(
        math.prod(p if right else 1 - p for p, right in zip(accuracies, outcome, strict=True))
        for outcome in itertools.product([0, 1], repeat=len(accuracies))
        if 2 * sum(outcome) <= len(accuracies)
    )
    assert majority_error(torch.tensor(accuracies, dtype=torch.float64)) == pytest.approx(naive, abs=1e-12)


def test_the_bound_of_theorem_3_1_is_the_formula_and_hoeffding_is_stronger() -> None:
    z = torch.linspace(0.5, 1, 101, dtype=torch.float64)
    assert ((2 * z - 1) ** 2 >= 2 * xi(z) - 1e-15).all()
    assert ensemble_error_bound(10, 0.7) == pytest.approx(math.exp(-5 * (0.4 - math.log(1.4))))


def minibatch_gradients(problem: LinearProblem, residuals: Tensor, batch_size: int) -> Tensor:
    """The gradient of every possible minibatch, (n^b, d, K)."""
    per_sample = torch.einsum("nd,nk->ndk", problem.inputs, residuals)
    batches = itertools.product(range(len(per_sample)), repeat=batch_size)
    return torch.stack([per_sample[list(batch)].mean(dim=0) for batch in batches])


def squared_norm(gradient: Tensor) -> Tensor:
    return gradient.square().sum(dim=(-2, -1))


@pytest.mark.parametrize("seed", range(3))
def test_gradient_gap_and_pl_constant_are_those_of_the_cross_entropy(seed: int) -> None:
    problem, _, _ = draw(generator(seed))
    target = problem.label_probabilities

    def loss(theta: Tensor) -> Tensor:
        return -(target * (problem.inputs @ theta).log_softmax(1)).sum(1).mean()

    theta = (problem.optimum + torch.randn(3, 4, generator=generator(seed)).double()).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(theta), theta)
    parameters = theta.detach()
    torch.testing.assert_close(problem.mean_gradient(problem.predict(parameters) - target), gradient)
    gap = loss(parameters) - loss(problem.optimum)
    torch.testing.assert_close(problem.gap(parameters), gap)
    torch.testing.assert_close(problem.pl_constant(parameters), squared_norm(gradient) / (2 * gap))


@pytest.mark.parametrize("seed", range(3))
def test_the_size_of_the_neighbourhood_is_the_printed_one_over_every_minibatch(seed: int) -> None:
    problem = random_problem(6, 3, 4, generator(seed))
    pseudo_labels = problem.pseudo_labels(-problem.optimum)
    ensemble = (problem.label_probabilities.log() + 0.5).sigmoid()
    gamma = 10**-seed
    terms = neighborhood(problem, pseudo_labels, ensemble, 2, gamma)
    student = minibatch_gradients(problem, problem.label_probabilities - pseudo_labels, 2)
    teacher = minibatch_gradients(problem, ensemble - pseudo_labels, 2)
    for lam in (-0.5, 0.0, 0.3, 1.7):
        spread = squared_norm(student - lam * teacher).mean()
        expected = lam**2 * squared_norm(teacher.mean(0)) + problem.smoothness * gamma / 2 * spread
        torch.testing.assert_close(terms.size(lam), expected)
    assert teacher_divergence(problem, pseudo_labels).isinf()


def test_the_bounds_along_a_run_are_the_printed_formulas() -> None:
    problem = random_problem(24, 2, 3, generator(0), scale=2.0)
    start = 1.5 * problem.optimum
    mu = 0.3 * float(problem.pl_constant(start))
    setting = Setting(4, 50, 8, problem.largest_learning_rate(8, mu), runs=4)
    run = adapt(problem, start, setting, generator(1))
    rate, gaps = (1 - mu * setting.learning_rate) ** 50, run.gaps.mean(1)
    terms = 8 / mu * run.errors.mean(1) + 2 / mu * run.sizes.mean(1)
    torch.testing.assert_close(run.step_bounds(mu), rate * gaps[:-1] + terms)
    whole = [rate**m * gaps[0] + sum(rate ** (m - i) * terms[i] for i in range(m + 1)) for m in range(4)]
    torch.testing.assert_close(run.corollary_bounds(mu), torch.stack(whole))


def test_adapt_is_ancon_with_normalised_votes_and_the_papers_convention() -> None:
    """The same run written out with the ensemble that training uses."""
    draws = generator(7)
    problem = random_problem(12, 2, 3, draws, scale=2.0)
    theta = 2 * torch.randn(2, 3, generator=draws, dtype=torch.float64)
    setting = Setting(outer_steps=6, inner_steps=40, batch_size=4, learning_rate=1.0, runs=1)
    run = adapt(problem, theta, setting, generator(1), lambda terms: terms.noise.new_full((1,), 0.6))
    ensemble = TemporalEnsemble(12, 3, beta=0.9, convention="paper", normalize=True)
    gaps, minibatches = [float(problem.gap(theta))], generator(1)
    for _ in range(setting.outer_steps):
        logits = problem.inputs @ theta
        smooth = ensemble(torch.arange(12), logits).double()
        hard = torch.eye(3, dtype=torch.float64)[logits.argmax(dim=1)]
        smooth = torch.where(smooth.sum(dim=1, keepdim=True) > 0, smooth, hard)
        targets = 0.4 * hard + 0.6 * smooth
        for _ in range(setting.inner_steps):
            batch = torch.randint(12, (1, 4), generator=minibatches)[0]
            x = problem.inputs[batch]
            theta = theta - x.T @ ((x @ theta).softmax(dim=1) - targets[batch]) / 4
        gaps.append(float(problem.gap(theta)))
    assert run.gaps[:, 0].tolist() == pytest.approx(gaps, abs=1e-6)
    assert not torch.allclose(smooth, hard), "the ensemble never differed from the pseudo-labels"
