"""Random problems of the linear model."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from benchmarks.theory.linear_model import LinearProblem, random_problem


def draw(generator: Generator, spread: float = 1.0) -> tuple[LinearProblem, Tensor, Tensor]:
    """A random problem, pseudo-labels of parameters off its optimum, and a soft ensemble around p(Y|x)."""
    problem = random_problem(16, 3, 4, generator)
    shift = 2 * torch.randn(problem.optimum.shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(problem.label_probabilities.shape, generator=generator, dtype=torch.float64)
    ensemble = (problem.label_probabilities.log() + spread * noise).softmax(dim=1)
    return problem, problem.pseudo_labels(problem.optimum + shift), ensemble
