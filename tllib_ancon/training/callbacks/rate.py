"""The learning rate, fitted before the first step."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.models.classifier import trainable
from tllib_ancon.runtime import processes
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.step import AdaptationStep
from tllib_ancon.training.trainer import Trainer

TRIAL = 1e-3
"""Rate of the trial steps. The change of predictions is linear in the rate up to about ten times this value."""

PAIRS = 2
"""Pairs of batches from which the rate is fitted."""

WITHOUT_STATISTICS = 1 / 3
"""How much less a step may change predictions where no batch-norm follows the target: a shift then reaches the labels
unreduced."""

ONE_VIEW = 0.4
"""Difference between the views of an image, about that of a hard target, where there is no second view."""


class FittedRate(Callback):
    r"""Fit the learning rate before the first step; it is at most the setting ``lr``. A step then changes predictions
    on another batch by τ times the difference of two views.

    .. math::
        η = η_0 τ \, \frac{\hat E\, d(f(x'; θ), f(x''; θ))}{\hat E\, d(f(x'; θ - η_0 ∇L(x)), f(x'; θ))},
        η_0 = 0.001,  d(p, q) = \tfrac12 \sum_k |p_k - q_k|

    with x' and x'' two views of the batch after x, and means over pairs of batches. A step that memorises its own batch
    hardly changes the predictions on others; a step that changes them much spreads the errors of its pseudo-labels.
    Where views agree, predictions are mostly right, and change little at any rate. The trial steps leave network and
    method as they were. Not in the paper; see ``benchmarks/default.md``.

    Args:
        step: loss of a step
        step_change: τ, part of the difference of two views by which a step may change predictions; a third of it counts
            where no batch-norm follows the target
    """

    def __init__(self, step: AdaptationStep, step_change: float):
        self.step = step
        self.step_change = step_change

    def begin_epoch(self, trainer: Trainer) -> None:
        if trainer.epoch > 1:
            return
        network = trainer.network
        method = self.step.method
        self.step.set_mode(network)
        state_of_network = copy.deepcopy(network.state_dict())
        state_of_method = copy.deepcopy(method.state_dict())
        (loader,) = trainer.loaders
        fitted = self._fitted_rate([*islice(loader, PAIRS + 1)], trainable(network))
        network.load_state_dict(state_of_network)
        method.load_state_dict(state_of_method)
        rate = min(fitted, trainer.settings.lr)
        trainer.set_rate(rate)
        trainer.metrics[-1]["lr"] = rate

    def _fitted_rate(self, batches: Sequence[Any], parameters: Sequence[nn.Parameter]) -> float:
        """η from pairs of batches; of one batch the change on itself counts. Infinity if no step changes anything."""
        distances = []
        for batch, next_batch in zip(batches, batches[1:] or batches, strict=False):
            loss, _, _ = self.step(batch)
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            with torch.no_grad():
                before = self.step.probabilities(next_batch)
                with _trial_step(parameters, gradients):
                    after = self.step.probabilities(next_batch)
                distances.append(torch.stack([_distance(after[0], before[0]), _distance(before[0], before[-1])]))
        mean_distances = processes.mean(torch.stack(distances).mean(0))
        change, between_views = map(float, mean_distances)
        if change == 0:
            return float("inf")
        return TRIAL * self._tau() * (between_views or ONE_VIEW) / change

    def _tau(self) -> float:
        if self.step.follows_target:
            return self.step_change
        return WITHOUT_STATISTICS * self.step_change


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
