"""Batch-norm statistics of a stream: a moving estimate, mixed with the statistics of the source model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.models.batch_norm import HALF, channel_moments, mixed_variance
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.runtime.types import State

WINDOW = 2000
"""Samples on which the moving estimate looks back."""
SOURCE_SAMPLES = 200
"""Samples for which the source's statistics count in the moving estimate at its start."""
JUDGING_WEIGHT = 0.7
"""Of the source's statistics in the mixture by which a batch's classes are judged."""


class MovingStatistics(nn.Module):
    """Statistics by which the batch-norm layers of a model normalise a stream. In no context they are the estimate.

    Args:
        layers: the layers, each with running statistics, which are those of the source model
    """

    def __init__(self, layers: Sequence[BATCH_NORMS]):
        super().__init__()
        self.layers = [*layers]  # a list, so that their tensors are in the state of the model alone
        self.estimates = nn.ModuleList(_MovingEstimate(layer) for layer in layers)
        self.source_weight = 0.0
        self.num_samples = 0
        for layer in layers:
            layer.eval()

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Each layer normalises by its batch, mixed with the source. The estimate does not change."""
        with self._each_layer(_MovingEstimate.judge):
            yield

    @contextmanager
    def of_estimate(self, source_weight: float) -> Iterator[None]:
        """Each layer normalises by the estimate, mixed with the source by this weight."""
        with self._each_layer():
            self._use_estimate(source_weight)
            yield

    @contextmanager
    def of_batch(self) -> Iterator[None]:
        """Each layer normalises by its batch, which replaces the estimate unless an error occurs."""
        for layer in self.layers:
            layer.train()
        with self._each_layer(partial(_MovingEstimate.move, weight=1.0)):
            yield
            self._commit(source_weight=0.0, num_samples=WINDOW)

    @contextmanager
    def moving(self, num_samples: int, source_weight: float) -> Iterator[None]:
        """The same. At the end a batch of a number of samples moves the estimate, unless an error occurs."""
        newest = max(num_samples / (SOURCE_SAMPLES + self.num_samples), num_samples / WINDOW)
        with self._each_layer(partial(_MovingEstimate.move, weight=min(newest, HALF))):
            self._use_estimate(source_weight)
            yield
            self._commit(source_weight, self.num_samples + num_samples)

    def _commit(self, source_weight: float, num_samples: int) -> None:
        self.source_weight = source_weight
        self.num_samples = min(num_samples, WINDOW)
        for _, estimate in self._layers_with_estimates():
            estimate.commit()

    def _use_estimate(self, source_weight: float) -> None:
        for layer, estimate in self._layers_with_estimates():
            estimate.set(layer, estimate.mean, estimate.variance, source_weight)

    @contextmanager
    def _each_layer(self, before: Callable[..., None] | None = None) -> Iterator[None]:
        """In this context each layer first calls ``before(estimate, layer, inputs)``. At its end each layer normalises
        by the estimate."""
        with ExitStack() as hooks:
            hooks.callback(lambda: self._use_estimate(self.source_weight))
            for layer, estimate in self._layers_with_estimates():
                estimate.pending = None
                if before is not None:
                    hooks.enter_context(layer.register_forward_pre_hook(partial(before, estimate)))
            yield

    def _layers_with_estimates(self) -> Iterator[tuple[BATCH_NORMS, Any]]:
        return zip(self.layers, self.estimates, strict=True)

    def get_extra_state(self) -> State:
        return {"source_weight": self.source_weight, "num_samples": self.num_samples}

    def set_extra_state(self, state: State) -> None:
        self.source_weight = state["source_weight"]
        self.num_samples = state["num_samples"]


class _MovingEstimate(nn.Module):
    """The moving estimate of one layer beside the statistics of the source model."""

    mean: Tensor
    variance: Tensor
    source_mean: Tensor
    source_variance: Tensor

    def __init__(self, layer: BATCH_NORMS):
        super().__init__()
        self.pending: tuple[Tensor, Tensor] | None = None
        for prefix in ("", "source_"):
            self.register_buffer(f"{prefix}mean", layer.get_buffer("running_mean").clone())
            self.register_buffer(f"{prefix}variance", layer.get_buffer("running_var").clone())

    @torch.no_grad()
    def judge(self, layer: BATCH_NORMS, inputs: tuple[Tensor]) -> None:
        mean, variance = channel_moments(inputs[0].float())
        self.set(layer, mean, variance, JUDGING_WEIGHT)

    @torch.no_grad()
    def move(self, layer: BATCH_NORMS, inputs: tuple[Tensor], weight: float) -> None:
        """The first call moves the estimate; a second view of the same samples does not."""
        if self.pending is not None:
            return
        mean, variance = channel_moments(inputs[0].float())
        moved_mean = self.mean.float().lerp(mean, weight)
        between = (1 - weight) * weight * (mean - self.mean).square()
        moved_variance = self.variance.float().lerp(variance, weight) + between
        self.pending = (moved_mean, moved_variance)

    @torch.no_grad()
    def commit(self) -> None:
        if self.pending is None:
            return
        mean, variance = self.pending
        self.mean.copy_(mean)
        self.variance.copy_(variance)
        self.pending = None

    @torch.no_grad()
    def set(self, layer: BATCH_NORMS, mean: Tensor, variance: Tensor, source_weight: float) -> None:
        """Let the layer normalise by these statistics, mixed with the source's."""
        mixed = mean.float().lerp(self.source_mean.float(), source_weight)
        spread = mixed_variance(variance.float(), self.source_variance.float(), source_weight, layer.eps)
        layer.eval()
        layer.running_mean = mixed.to(self.mean.dtype)  # new tensors: a graph may hold those before
        layer.running_var = spread.to(self.mean.dtype)
