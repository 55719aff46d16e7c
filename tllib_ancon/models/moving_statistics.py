"""Batch-norm statistics of a stream: a moving estimate, mixed with the statistics of the source model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.models.batch_norm import HALF, LayerStatistics, channel_moments
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

    estimates: Any  # a list of modules

    def __init__(self, layers: Sequence[BATCH_NORMS]):
        super().__init__()
        self.estimates = nn.ModuleList(map(_MovingEstimate, layers))
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
        self._use_estimate(source_weight)
        try:
            yield
        finally:
            self._use_estimate(self.source_weight)

    @contextmanager
    def of_batch(self) -> Iterator[None]:
        """Each layer normalises by its batch, which replaces the estimate unless an error occurs."""
        for estimate in self.estimates:
            estimate.layer.train()
        with self._moved(1.0, source_weight=0.0, num_samples=WINDOW):
            yield

    @contextmanager
    def moving(self, num_samples: int, source_weight: float) -> Iterator[None]:
        """Each layer normalises by the estimate, mixed with the source by this weight. At the end a batch of a number
        of samples moves the estimate, unless an error occurs."""
        newest = max(num_samples / (SOURCE_SAMPLES + self.num_samples), num_samples / WINDOW)
        self._use_estimate(source_weight)
        with self._moved(min(newest, HALF), source_weight, self.num_samples + num_samples):
            yield

    @contextmanager
    def _moved(self, batch_weight: float, source_weight: float, num_samples: int) -> Iterator[None]:
        with self._each_layer(partial(_MovingEstimate.move, batch_weight=batch_weight)):
            yield
            self.source_weight = source_weight
            self.num_samples = min(num_samples, WINDOW)
            for estimate in self.estimates:
                estimate.commit()

    def _use_estimate(self, source_weight: float) -> None:
        for estimate in self.estimates:
            estimate.use(estimate.mean, estimate.variance, source_weight)

    @contextmanager
    def _each_layer(self, before: Callable[..., None]) -> Iterator[None]:
        """In this context each layer first calls ``before(estimate, layer, inputs)``. At its end each layer normalises
        by the estimate."""
        with ExitStack() as hooks:
            hooks.callback(lambda: self._use_estimate(self.source_weight))
            for estimate in self.estimates:
                estimate.moved = None
                hooks.enter_context(estimate.layer.register_forward_pre_hook(partial(before, estimate)))
            yield

    def get_extra_state(self) -> State:
        return {"source_weight": self.source_weight, "num_samples": self.num_samples}

    def set_extra_state(self, state: State) -> None:
        self.source_weight = state["source_weight"]
        self.num_samples = state["num_samples"]


class _MovingEstimate(LayerStatistics):
    """The moving estimate of one layer."""

    mean: Tensor
    variance: Tensor

    def __init__(self, layer: BATCH_NORMS):
        super().__init__(layer)
        self.moved: tuple[Tensor, Tensor] | None = None
        self.register_buffer("mean", self.source_mean.clone())
        self.register_buffer("variance", self.source_variance.clone())

    @torch.no_grad()
    def use(self, mean: Tensor, variance: Tensor, source_weight: float) -> None:
        """Let the layer normalise by these statistics, mixed with the source's."""
        self.layer.eval()
        self.set(*self.mixed(mean, variance, source_weight))

    @torch.no_grad()
    def judge(self, layer: nn.Module, inputs: tuple[Tensor]) -> None:
        self.use(*channel_moments(inputs[0].float()), JUDGING_WEIGHT)

    @torch.no_grad()
    def move(self, layer: nn.Module, inputs: tuple[Tensor], batch_weight: float) -> None:
        """The first call moves the estimate; a second view of the same samples does not."""
        if self.moved is not None:
            return
        mean, variance = channel_moments(inputs[0].float())
        moved_mean = self.mean.float().lerp(mean, batch_weight)
        between = (1 - batch_weight) * batch_weight * (mean - self.mean).square()
        self.moved = (moved_mean, self.variance.float().lerp(variance, batch_weight) + between)

    @torch.no_grad()
    def commit(self) -> None:
        if self.moved is None:
            return
        mean, variance = self.moved
        self.mean.copy_(mean)
        self.variance.copy_(variance)
