"""What keeps an adaptation near its start: a pull back to its weights, and the mean of the last epochs' weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from tllib_ancon.config import AdaptConfig
from tllib_ancon.errors import UserError

OF_TRAINING = {"pull": 0.0, "warmup_steps": 0, "average_last": 0}
"""Settings that say how weights change -> what they are where they say nothing."""


class Pull:
    r"""Weights that return a little to where they were after each step.

    .. math::
        \theta \leftarrow (1 - \rho)\, \theta + \rho\, \theta_0

    Args:
        parameters: θ, as they start
        share (float): ρ in [0, 1); 0 changes nothing

    Source: Marsden et al., "Universal Test-time Adaptation through Weight Ensembling, Diversity Weighting, and Prior
    Correction" (ROID), WACV 2024, Eq. (4).
    """

    def __init__(self, parameters: Iterable[nn.Parameter], share: float):
        self.share = share
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad] if share else []
        self.start = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def __call__(self) -> None:
        for parameter, start in zip(self.parameters, self.start, strict=True):
            parameter.lerp_(start, self.share)


class LastEpochs:
    r"""The mean of the weights after each of the last epochs.

    .. math::
        \bar\theta = \frac1n \sum_{e > E - n} \theta_e

    Args:
        model (nn.Module): the network; its parameters are averaged, its buffers not
        epochs (int): E
        count (int): n; 0 for no mean

    Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018.
    """

    def __init__(self, model: nn.Module, epochs: int, count: int):
        self.model = model
        self.first = epochs - count + 1
        self.mean = AveragedModel(model) if count else None

    def add(self, epoch: int) -> None:
        """Count the weights after this epoch, if it is one of the last."""
        if self.mean is not None and epoch >= self.first:
            self.mean.update_parameters(self.model)

    @torch.no_grad()
    def take(self) -> None:
        """Give the model the mean."""
        assert self.mean is not None
        for parameter, mean in zip(self.model.parameters(), self.mean.module.parameters(), strict=True):
            parameter.copy_(mean)

    def state_dict(self) -> dict[str, Any]:
        assert self.mean is not None
        return self.mean.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert self.mean is not None
        self.mean.load_state_dict(state)


def require_training(options: AdaptConfig) -> None:
    """What a method that trains nothing, such as AdaBN, does not heed.

    Raises:
        UserError: a setting of :data:`OF_TRAINING`, or ``batch_norm=source``
    """
    given = [name for name, nothing in OF_TRAINING.items() if getattr(options, name) != nothing]
    given += ["batch_norm"] if options.batch_norm == "source" else []
    if given:
        raise UserError(
            f"`{given[0]}={getattr(options, given[0])}` has no effect with `method={options.method}`, which trains "
            "nothing; leave it out"
        )
