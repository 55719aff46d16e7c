"""The learning rate at which one step changes predictions by a given amount."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from tllib_ancon import processes

Batch = TypeVar("Batch")
TRIAL = 1e-3
"""Rate of the trial steps. The change of predictions is linear in the rate up to about ten times this value."""
PAIRS = 2


def fitted_rate(
    step_change: float,
    batches: Sequence[Batch],
    parameters: Sequence[nn.Parameter],
    loss: Callable[[Batch], Tensor],
    predict: Callable[[Batch], Tensor],
) -> float:
    r"""Fit the learning rate so that a step on one batch changes the predictions on another by τ.

    .. math::
        η = η_0 τ / \hat E\Big[\tfrac12 \sum_k \big| f_k(x'; θ - η_0 ∇L(x)) - f_k(x'; θ) \big|\Big],  η_0 = 0.001

    with the mean over pairs of consecutive batches x, x' and all their images. A step that memorises its own batch
    hardly changes the predictions on others; a step that changes them much spreads the errors of its pseudo-labels.
    The parameters end unchanged; the caller restores other state, such as votes. Not in the paper; see
    ``benchmarks/results/ablation.md``.

    Args:
        step_change: τ, the total variation between predictions before and after a step, in (0, 1)
        batches: one or more; of one batch the change on itself counts
        parameters: the trained ones
        loss: batch -> scalar with gradient
        predict: batch -> probabilities (B, K)

    Returns: η; infinity if no step changes any prediction
    """
    measured = []
    for batch, other in zip(batches, [*batches[1:], *batches[: len(batches) == 1]], strict=False):
        gradients = torch.autograd.grad(loss(batch), parameters, allow_unused=True)
        steps = [
            (one, gradient, one.detach().clone())
            for one, gradient in zip(parameters, gradients, strict=True)
            if gradient is not None  # type: ignore[redundant-expr]
        ]
        with torch.no_grad():
            before = predict(other)
            for one, gradient, _ in steps:
                one.sub_(gradient, alpha=TRIAL)
            change = (predict(other) - before).abs().sum(1).mean() / 2
            measured.append(torch.stack([change, 1 - before.square().sum(1).mean()]))
            for one, _, original in steps:
                one.copy_(original)
    change, uncertainty = processes.mean(torch.stack(measured).mean(0)).tolist()
    return TRIAL * step_change * uncertainty / change if change else float("inf")
