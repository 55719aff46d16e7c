"""The learning rate at which one step changes predictions by a given part of the difference between two views."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.runtime import processes

TRIAL = 1e-3
"""Rate of the trial steps. The change of predictions is linear in the rate up to about ten times this value."""

PAIRS = 2
"""Pairs of batches from which the rate is fitted."""

ONE_VIEW = 0.4
"""Difference between the views of an image, about that of a hard target, where there is no second view."""


def fitted_rate(
    step_change: float,
    batches: Sequence[Any],
    parameters: Sequence[nn.Parameter],
    loss: Callable[[Any], Tensor],
    predict: Callable[[Any], Tensor],
) -> float:
    r"""Fit the learning rate so that a step changes predictions on another batch by τ of the difference of two views.

    .. math::
        η = η_0 τ \, \frac{\hat E\, d(f(x'; θ), f(x''; θ))}{\hat E\, d(f(x'; θ - η_0 ∇L(x)), f(x'; θ))},
        η_0 = 0.001,  d(p, q) = \tfrac12 \sum_k |p_k - q_k|

    with x' and x'' two views of the batch after x, and means over pairs of batches. A step that memorises its own batch
    hardly changes the predictions on others; a step that changes them much spreads the errors of its pseudo-labels.
    Where views agree, predictions are mostly right, and change little at any rate. The parameters end unchanged; the
    caller restores other state, such as votes. Not in the paper; see ``benchmarks/default.md``.

    Args:
        step_change: τ in (0, 1)
        batches: one or more; of one batch the change on itself counts
        parameters: the trained ones
        loss: batch -> scalar with gradient
        predict: batch -> probabilities (V, B, K) of its views; with one, their difference counts as 0.4

    Returns: η; infinity if no step changes any prediction
    """
    next_batches = batches[1:] or batches
    distances = []
    for batch, next_batch in zip(batches, next_batches, strict=False):
        gradients = torch.autograd.grad(loss(batch), parameters, materialize_grads=True)
        with torch.no_grad():
            before = predict(next_batch)
            with _trial_step(parameters, gradients):
                after = predict(next_batch)
            distance_of_step = _distance(after[0], before[0])
            distance_of_views = _distance(before[0], before[-1])
            distances.append(torch.stack([distance_of_step, distance_of_views]))
    mean_distances = processes.mean(torch.stack(distances).mean(0))
    change, between_views = map(float, mean_distances)
    if change == 0:
        return float("inf")
    return TRIAL * step_change * (between_views or ONE_VIEW) / change


@contextmanager
def _trial_step(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> Iterator[None]:
    """In this context the parameters are those after a step of the trial rate."""
    originals = [parameter.clone() for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.sub_(gradient, alpha=TRIAL)
    yield
    for parameter, original in zip(parameters, originals, strict=True):
        parameter.copy_(original)


def _distance(probabilities: Tensor, reference: Tensor) -> Tensor:
    """Mean total variation."""
    return (probabilities - reference).abs().sum(-1).mean() / 2
