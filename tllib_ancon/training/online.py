"""A model that adapts to a stream: each batch is predicted, then learnt from, and not seen again."""

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.batch_norm import HALF, agreement
from tllib_ancon.models.calling import called
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.models.moving_statistics import MovingStatistics
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.opening.open import OpenedModel, open_model
from tllib_ancon.runtime.errors import BadSetting, UserError, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import State
from tllib_ancon.self_training.streams import (
    are_far,
    frequencies_before,
    moved_frequencies,
    stream_method,
)
from tllib_ancon.training.learning import NORMS, without_gradient

ENOUGH = 8
"""Samples with which a model is tried."""
ENOUGH_SAMPLES = 64
"""From which a batch has batch-norm statistics that can be used, and can be learnt from."""
FAR_BATCHES = 5
"""First batches after which a note says that nothing was learnt."""


def mirrored(batch: Tensor) -> Tensor:
    """Images (B, C, H, W) with left and right swapped; other inputs unchanged."""
    if batch.ndim == 4:
        return mirror(batch)
    return batch


def _finite(tensor: Tensor) -> Tensor:
    if not tensor.isfinite().all():
        raise UserError("predictions or loss of this batch are not finite", "leave out samples with NaN")
    return tensor


class Online(nn.Module):
    """A model that adapts to every batch that it predicts; :func:`online` makes it.

    ``state_dict`` holds the model, the moving averages, the samples that wait for a step, and the optimiser. ``reset``
    restores the source model. ``notes`` has what it told, also as warnings.
    """

    def __init__(
        self,
        opened: OpenedModel,
        method: str,
        batch_norm: str,
        augment: Callable[[Any], Any],
        create_optimizer: Callable[[list[nn.Parameter]], Optimizer],
    ):
        super().__init__()
        self.model = opened.network.eval().requires_grad_(False)
        self.unchecked: OpenedModel | None = opened  # until the first batch
        self.reader = opened.source.reader
        self.stream = stream_method(method)
        self.augment = augment
        layers = [layer for layer in self.model.modules() if isinstance(layer, NORMS)]
        self.batch_norms = [layer for layer in layers if isinstance(layer, BATCH_NORMS)]
        if not (layers if self.stream.trains else self.batch_norms):
            kind = "normalisation" if self.stream.trains else "batch-norm"
            raise BadSetting(
                f"{named('method', method)} needs {kind} layers, and this model has none",
                "pass a model with them",
                setting="method",
            )
        self.parameters_adapted = list(nn.ModuleList(layers).parameters())
        self.statistics = self._statistics_of(batch_norm)
        for parameter in self.parameters_adapted:
            parameter.requires_grad_(self.stream.trains)
        self.optimizer = create_optimizer(self.parameters_adapted)
        self.notes: list[Note] = []
        self.far_batches_until_a_note = FAR_BATCHES
        self.average: Tensor | None = None  # of the predictions, (K,)
        self.class_frequencies: Tensor | None = None  # of the predicted classes, (K,)
        self.collected: list[Tensor] = []
        self.source = copy.deepcopy(self.state_dict())
        self.anchors = copy.deepcopy(self.parameters_adapted)

    def train(self, mode: bool = True) -> "Online":
        """Note the mode of the program around this module. The modes of the layers are those of the method."""
        self.training = mode
        return self

    def _statistics_of(self, batch_norm: str) -> MovingStatistics | None:
        """What mixes statistics, or None where each batch is normalised by its statistics alone."""
        have_statistics = all(layer.track_running_stats for layer in self.batch_norms)
        if batch_norm == "mixed" and self.batch_norms and have_statistics:
            return MovingStatistics(self.batch_norms)
        for layer in self.batch_norms:
            layer.train()
        return None

    def forward(self, batch: Tensor) -> Tensor:
        """Predict this batch, then learn from it."""
        with recording_gradients():
            samples = batch.clone() if batch.is_inference() else batch  # which autograd cannot record
            if self.unchecked is not None:
                self._check(self.unchecked, samples[:ENOUGH])
                self.unchecked = None
            if self.statistics is not None:
                if len(samples) < ENOUGH_SAMPLES:
                    return self._predict_and_collect(samples, self.statistics)
                return self._adapt_to_stream(samples, self.statistics)
            if len(samples) < 2 and self.batch_norms:
                raise UserError(
                    "a batch of one sample has no batch-norm statistics",
                    f"collect at least two samples, or pass {named('batch_norm', 'mixed')} for a model with running "
                    "statistics",
                )
            return self._adapt_to(samples)

    def _check(self, opened: OpenedModel, samples: Tensor) -> None:
        """Check the logits of the model, and that a copy of the caller's computes the same."""
        with self.statistics.of_estimate(source_weight=1.0) if self.statistics else nullcontext():
            called(self.model, samples)  # of a type that the model takes: adapt would convert it
            opened.as_classifier(samples).release()

    def _adapt_to_stream(self, batch: Tensor, statistics: MovingStatistics) -> Tensor:
        """Predict a batch and learn from it, by its statistics. A batch whose classes are far from the stream's is
        predicted by the moving estimate, and not learnt from."""
        with statistics.judging():
            logits = self._logits(batch)
        classes = logits.argmax(1)
        frequencies = frequencies_before(self.class_frequencies, logits)
        if are_far(classes, frequencies):
            self._note_that_nothing_is_learnt()
            with statistics.moving(len(batch), self._source_weight_for(batch, statistics)):
                predictions = self._predictions(self._logits(batch))
        else:
            self.far_batches_until_a_note = 0
            with statistics.of_batch():
                predictions = self._adapt_to(batch)
        self.class_frequencies = moved_frequencies(frequencies, classes)
        return predictions

    def _note_that_nothing_is_learnt(self) -> None:
        """Warn once if the stream's first batches were all far, as of a sorted stream or a source model that fails."""
        self.far_batches_until_a_note -= 1
        if self.far_batches_until_a_note == 0:
            text = (
                f"nothing was learnt from the first {FAR_BATCHES} batches, which were predicted by mixed batch-norm "
                "statistics: their predicted classes are far from equally frequent"
            )
            action = f"unless the stream is sorted by class, pass {named('batch_norm', 'target')}"
            self.notes.append(Note("nothing-learnt", text, "batch_norm", action, "warning"))
            warnings.warn(str(self.notes[-1]), stacklevel=6)

    def _source_weight_for(self, batch: Tensor, statistics: MovingStatistics) -> float:
        """Weight of the source's statistics by which this batch is normalised. It is at least half: the estimate is of
        few classes, as long as a stream is sorted."""
        with statistics.of_estimate(1.0):
            source_logits = self._logits(batch)
        with statistics.of_estimate(HALF):
            return max(HALF, agreement(self._logits(batch), source_logits))

    def _predict_and_collect(self, batch: Tensor, statistics: MovingStatistics) -> Tensor:
        """Predict a few samples by the moving estimate, and adapt to them once there are enough."""
        if self.collected and batch.shape[1:] != self.collected[0].shape[1:]:
            self.collected = []  # of another size: a batch has one
        logits = self._logits(batch)
        self.collected.append(batch.clone())  # the caller may reuse the memory for the next frame
        if sum(map(len, self.collected)) >= ENOUGH_SAMPLES:
            samples = torch.cat(self.collected)
            self.collected = []
            self._adapt_to_stream(samples, statistics)
        return logits

    @torch.no_grad()
    def _logits(self, batch: Tensor) -> Tensor:
        return _finite(self._read(batch))

    def _read(self, batch: Tensor) -> Tensor:
        """Logits of a batch, with a graph where parameters learn."""
        return self.reader(self.model(batch), len(batch))

    @torch.no_grad()
    def _predictions(self, logits: Tensor) -> Tensor:
        return _finite(self.stream.predictions(logits.detach()))

    def _adapt_to(self, batch: Tensor) -> Tensor:
        """Predict a batch by the statistics by which the layers normalise, then learn from it."""
        if not self.stream.trains:
            return self._logits(batch)
        logits = self._read(batch)
        loss, average = self.stream.step(logits, self.average, lambda: self._read(self.augment(batch)))
        _finite(loss)
        if not loss.requires_grad:
            raise without_gradient()
        predictions = self._predictions(logits)
        self.average = average
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.stream.source_weight > 0:
            self._move_to_source(self.stream.source_weight)
        return predictions

    @torch.no_grad()
    def _move_to_source(self, source_weight: float) -> None:
        """Move the parameters towards those of the source model."""
        for parameter, anchor in zip(self.parameters_adapted, self.anchors, strict=True):
            parameter.lerp_(anchor.to(parameter), source_weight)

    @recording_gradients()
    def reset(self) -> None:
        """Restore the source model, the moving average and the optimiser."""
        self.load_state_dict(self.source)

    def get_extra_state(self) -> State:
        return {
            "average": self.average,
            "class_frequencies": self.class_frequencies,
            "collected": self.collected,
            "optimizer": self.optimizer.state_dict(),
        }

    def set_extra_state(self, state: State) -> None:
        self.unchecked = None  # a stream that continues has been checked, and has learnt
        state = copy.deepcopy(state)
        self.average = state["average"]
        self.class_frequencies = state["class_frequencies"]
        self.collected = state["collected"]
        self.optimizer.load_state_dict(state["optimizer"])


@validated
def online(
    model: Model,
    method: str = "roid",
    optimizer: Callable[..., Optimizer] = Adam,
    lr: float = 0.001,
    augment: Callable[[Any], Any] = mirrored,
    output: Output | None = None,
    batch_norm: Literal["mixed", "target"] = "mixed",
) -> Online:
    """Wrap a model so that it adapts to every batch that it predicts.

    Args:
        model: any module from a batch to logits (B, K), which is copied; a checkpoint or run directory
        method: ``tent``, ``adabn``, ``eta``, ``roid`` or ``stream-auto``: pseudo-labels of two views, weighted by
            class. A stream shows each sample once, so that no method has votes. Default: ``roid``
        optimizer: parameters, ``lr`` -> optimiser of them, of scale and shift of the normalisation layers: a class of
            ``torch.optim``, or ``partial(torch.optim.SGD, momentum=0.9)``. ``adabn`` trains nothing
        lr: learning rate
        augment: batch -> batch, the second view of ``roid`` and ``stream-auto``. Default: the mirror image of images
        output: as for :func:`tllib_ancon.adapt`
        batch_norm: statistics of batch-norm layers. ``"target"``: of each batch, as the papers define the methods.
            ``"mixed"``: also for sorted streams and for batches of any size, see below. Default: ``"mixed"``

    With ``batch_norm="mixed"`` and logits (B, K), a batch of 64 samples or more is first predicted by its statistics
    mixed with the source model's. If these predicted classes are like those of the stream so far, the batch is then
    predicted and learnt from as with ``"target"``. If they are far, as in a stream that is sorted by class, the batch
    is not learnt from. Batch-norm then uses a moving estimate over the stream, mixed with the source model's
    statistics by how far the predictions of both agree, and by half at least. A warning says if the first five batches
    are all far. Smaller batches, down to one sample, are predicted by the moving estimate, and are such a batch once 64
    samples are collected. This part is ours and in none of the papers.

    Returns: a module; calling it with a batch returns the predictions

    Raises:
        UserError: an unknown method, a model without normalisation layers, a batch of one sample where each batch has
            its statistics

    Example::

        >>> adapting = tllib_ancon.online(model, method="tent")
        >>> for batch in stream:
        ...     logits = adapting(batch)
    """
    with recording_gradients():
        opened = open_model(model, PredictConfig().with_paths(checkpoint=model), output=output).copied()
        return Online(opened, method, batch_norm, augment, partial(optimizer, lr=lr))
