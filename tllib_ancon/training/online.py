"""A model that adapts to a stream: each batch is predicted, then learnt from, and not seen again."""

import copy
import inspect
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

from tllib_ancon.config.arguments import validated
from tllib_ancon.data.batches import form_of
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.batch_norm import HALF, mixing_weight
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.models.copies import copy_of, recording_gradients, require_true_copy, unwrapped
from tllib_ancon.models.head import inspect as inspected
from tllib_ancon.models.moving_statistics import MovingStatistics
from tllib_ancon.models.output import Output, OutputReader
from tllib_ancon.models.requirements import require_network
from tllib_ancon.runtime.errors import BadSetting, UserError, named, unknown_name
from tllib_ancon.runtime.types import Options, State
from tllib_ancon.self_training.streams import (
    StreamBatch,
    are_far,
    moved_frequencies,
    stream_method,
    uniform_frequencies,
)

ENOUGH = 8
"""Samples with which a model is tried."""
OPTIMIZERS = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
ENOUGH_SAMPLES = 64
"""From which a batch has batch-norm statistics that can be used, and can be learnt from."""
FAR_BATCHES = 5
"""First batches after which a note says that nothing was learnt."""
NORMS = (BATCH_NORMS, nn.LayerNorm, nn.GroupNorm)


def _require_known(settings: Options, optimizer: str) -> None:
    """Raise an error for a setting that neither :func:`online` nor the optimiser has."""
    of_optimizer = inspect.signature(OPTIMIZERS[optimizer]).parameters
    valid_names = {*of_optimizer, *inspect.signature(online).parameters} - {"params", "model", "settings"}
    for name in settings:
        if name not in valid_names:
            raise unknown_name("setting", name, valid_names)


def mirrored(batch: Any) -> Any:
    """Images (B, C, H, W) with left and right swapped; other inputs unchanged."""
    if batch.ndim == 4:
        return mirror(batch)
    return batch


def _recordable(tensor: Any) -> Tensor:
    """The tensor, or a copy of one of inference mode, which autograd cannot record."""
    if not isinstance(tensor, Tensor):
        raise UserError(
            f"a batch must be a tensor (B, C, H, W), not of type {type(tensor).__name__}",
            "convert it as for the model's training",
        )
    if tensor.is_inference():
        return tensor.clone()
    return tensor


def _finite(tensor: Tensor) -> Tensor:
    if not tensor.isfinite().all():
        raise UserError("predictions or loss of this batch are not finite", "leave out samples with NaN")
    return tensor


class Online(nn.Module):
    """A model that adapts to every batch that it predicts; :func:`online` makes it.

    ``state_dict`` holds the model, the moving averages, the samples that wait for a step, and the optimiser. ``reset``
    restores the source model.
    """

    @recording_gradients()
    def __init__(
        self,
        model: nn.Module,
        method: str,
        optimizer: str,
        lr: float,
        augment: Callable[[Any], Any],
        settings: Options,
        output: Output | None = None,
        batch_norm: str = "mixed",
    ):
        super().__init__()
        self.model = copy_of(require_network(model, learns=True)).eval().requires_grad_(False)
        self.copied_from = [model]  # until the first batch, which must not reach it
        self.method = method
        self.stream = stream_method(method)
        self.augment = augment
        self.reader = OutputReader.of(output)
        layers = [layer for layer in self.model.modules() if isinstance(layer, NORMS)]
        self.batch_norms = [layer for layer in layers if isinstance(layer, BATCH_NORMS)]
        self.parameters_adapted = list(nn.ModuleList(layers).parameters())
        self._require_layers()
        self.batch_norm = batch_norm
        self.statistics = self._statistics_of(batch_norm)
        if self.statistics is None:
            self._normalise_by_batches()
        for parameter in self.parameters_adapted:
            parameter.requires_grad_(self.stream.trains)
        _require_known(settings, optimizer)
        self.optimizer = OPTIMIZERS[optimizer](self.parameters_adapted, lr=lr, **settings)
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

    def _require_layers(self) -> None:
        if self.stream.trains and not self.parameters_adapted:
            kind = "normalisation"
        elif not self.stream.trains and not self.batch_norms:
            kind = "batch-norm"
        else:
            return
        raise BadSetting(
            f"{named('method', self.method)} needs {kind} layers, and this model has none",
            "pass a model with them",
            setting="method",
        )

    def _statistics_of(self, batch_norm: str) -> MovingStatistics | None:
        """What mixes statistics, or None where each batch is normalised by its statistics alone."""
        have_statistics = all(layer.track_running_stats for layer in self.batch_norms)
        if batch_norm == "target" or not self.batch_norms or not have_statistics:
            return None
        return MovingStatistics(self.batch_norms)

    def _normalise_by_batches(self) -> None:
        for layer in self.batch_norms:
            layer.train()

    def forward(self, batch: Tensor) -> Tensor:
        """Predict this batch, then learn from it."""
        with recording_gradients():
            normal_batch = _recordable(batch)
            if self.copied_from:
                self._inspect(self.copied_from[0], normal_batch)
                self.copied_from.clear()
            if self.statistics is not None:
                if len(normal_batch) < ENOUGH_SAMPLES:
                    return self._predict_and_collect(normal_batch)
                return self._adapt_to_stream(normal_batch)
            if len(normal_batch) < 2 and self.batch_norms:
                advice = "collect at least two samples"
                if self.batch_norm == "target":
                    advice += f", or leave out {named('batch_norm', 'target')}"
                raise UserError("a batch of one sample has no batch-norm statistics", advice)
            return self._adapt_to(normal_batch)

    def _inspect(self, model: nn.Module, batch: Tensor) -> None:
        """Check the logits of the model, and that the copy computes the same, with the first samples."""
        samples = batch[:ENOUGH]
        network = unwrapped(model)
        num_classes = len(getattr(model, "classes", ()))
        logits, _ = inspected(network, samples, self.reader, num_classes=num_classes)
        with self.statistics.of_estimate(source_weight=1.0) if self.statistics else nullcontext():
            require_true_copy(network, self.model, samples, self.reader, logits)

    def _adapt_to(self, batch: Tensor) -> Tensor:
        """Predict a batch by the statistics by which the layers normalise, then learn from it."""
        if self.stream.trains:
            return self._learn_from(batch)
        return self._predict(batch)

    def _adapt_to_stream(self, batch: Tensor) -> Tensor:
        """The same by the batch's statistics. A batch whose classes are far from the stream's is predicted by the
        moving estimate, and not learnt from."""
        assert self.statistics is not None
        with self.statistics.judging():
            logits = self._logits(batch)
        classes = logits.argmax(1)
        frequencies = uniform_frequencies(logits)
        if self.class_frequencies is not None:
            frequencies = self.class_frequencies.to(logits.device)
        if are_far(classes, frequencies):
            self._note_that_nothing_is_learnt()
            with self.statistics.moving(len(batch), self._source_weight_for(batch)):
                predictions = self._predict(batch)
        else:
            self.far_batches_until_a_note = 0
            with self.statistics.of_batch():
                predictions = self._adapt_to(batch)
        self.class_frequencies = moved_frequencies(frequencies, classes)
        return predictions

    def _note_that_nothing_is_learnt(self) -> None:
        """Warn once if the stream's first batches were all far, as of a sorted stream or a source model that fails."""
        self.far_batches_until_a_note -= 1
        if self.far_batches_until_a_note == 0:
            warnings.warn(
                f"nothing was learnt from the first {FAR_BATCHES} batches, which were predicted by mixed batch-norm "
                "statistics: their predicted classes are far from equally frequent; unless the stream is sorted by "
                f"class, pass {named('batch_norm', 'target')}",
                stacklevel=6,
            )

    def _source_weight_for(self, batch: Tensor) -> float:
        """Weight of the source's statistics by which this batch is normalised, chosen as ``adapt`` chooses it."""
        assert self.statistics is not None
        with self.statistics.of_estimate(source_weight=1.0):
            source_classes = self._logits(batch).argmax(1)
        with self.statistics.of_estimate(HALF):
            logits = self._logits(batch)
        agreement = float((logits.argmax(1) == source_classes).float().mean())
        return mixing_weight(logits, agreement)

    def _predict_and_collect(self, batch: Tensor) -> Tensor:
        """Predict a few samples by the moving estimate, and adapt to them once there are enough."""
        if self.collected and form_of(batch) != form_of(self.collected[0]):
            raise UserError(
                f"a batch of shape {tuple(batch.shape)} comes after {tuple(self.collected[0].shape)}, and batches "
                f"below {ENOUGH_SAMPLES} samples are learnt from together",
                "convert images to one size",
            )
        logits = self._logits(batch)
        self.collected.append(batch.clone())  # the caller may reuse the memory for the next frame
        if sum(map(len, self.collected)) >= ENOUGH_SAMPLES:
            samples = torch.cat(self.collected)
            self.collected = []
            self._adapt_to_stream(samples)
        return logits

    @torch.no_grad()
    def _logits(self, batch: Tensor) -> Tensor:
        return _finite(self._read(batch))

    def _read(self, batch: Tensor) -> Tensor:
        """Logits of a batch, with a graph where parameters learn."""
        return self.reader(self.model(batch), len(batch))

    def _predict(self, batch: Tensor) -> Tensor:
        logits = self._logits(batch)
        if self.stream.trains:
            return self._predictions_from(logits)
        return logits

    def _learn_from(self, batch: Tensor) -> Tensor:
        logits = self._read(batch)

        def second_view() -> Tensor:
            return self._read(self.augment(batch))

        loss, average = self.stream.step(StreamBatch(logits, self.average, second_view))
        _finite(loss)
        predictions = self._predictions_from(logits)
        self.average = average
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self._move_to_source()
        return predictions

    @torch.no_grad()
    def _predictions_from(self, logits: Tensor) -> Tensor:
        return _finite(self.stream.predictions(logits).detach())

    @torch.no_grad()
    def _move_to_source(self) -> None:
        """Move the parameters towards those of the source model, by the method's weight of these."""
        if self.stream.source_weight == 0:
            return
        for parameter, anchor in zip(self.parameters_adapted, self.anchors, strict=True):
            parameter.lerp_(anchor.to(parameter), self.stream.source_weight)

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
        self.copied_from.clear()  # a stream that continues has been checked, and has learnt
        state = copy.deepcopy(state)
        self.average = state["average"]
        self.class_frequencies = state["class_frequencies"]
        self.collected = state["collected"]
        self.optimizer.load_state_dict(state["optimizer"])


@validated
def online(
    model: nn.Module,
    method: str = "roid",
    optimizer: Literal["sgd", "adam", "adamw"] | None = None,
    lr: float | None = None,
    augment: Callable[[Any], Any] = mirrored,
    output: Output | None = None,
    batch_norm: Literal["mixed", "target"] = "mixed",
    **settings: Any,
) -> Online:
    """Wrap a model so that it adapts to every batch that it predicts.

    Args:
        model: any module from a batch to logits (B, K). A copy is adapted
        method: ``tent``, ``adabn``, ``eta``, ``roid`` or ``stream-auto``: pseudo-labels of two views, weighted by
            class. A stream shows each sample once, so that no method has votes. Default: ``roid``
        optimizer: of scale and shift of the normalisation layers, which are trained. Default: ``adam``. ``adabn``
            trains nothing and takes no setting of an optimiser
        lr (float): learning rate. Default: 0.001
        augment: batch -> batch, the second view of ``roid`` and ``stream-auto``. Default: the mirror image of images
        output: as for :func:`tllib_ancon.adapt`
        batch_norm: statistics of batch-norm layers. ``"target"``: of each batch, as the papers define the methods.
            ``"mixed"``: also for sorted streams and for batches of any size, see below. Default: ``"mixed"``
        **settings: of the optimiser, such as ``betas`` or ``momentum``

    With ``batch_norm="mixed"`` and logits (B, K), a batch of 64 samples or more is first predicted by its statistics
    mixed with the source model's. If these predicted classes are like those of the stream so far, the batch is then
    predicted and learnt from as with ``"target"``. If they are far, as in a stream that is sorted by class, the batch
    is not learnt from. Batch-norm then uses a moving estimate over the stream, mixed with the source model's
    statistics by the weight that ``adapt`` would choose. A warning says if the first five batches are all far. Smaller
    batches, down to one sample, are predicted by the moving estimate, and are such a batch once 64 samples are
    collected. This part is ours and in none of the papers.

    Returns: a module; calling it with a batch returns the predictions

    Raises:
        UserError: an unknown method or optimiser, a setting without effect, a model without normalisation layers, a
            batch of one sample where each batch has its statistics

    Example::

        >>> adapting = tllib_ancon.online(model, method="tent")
        >>> for batch in stream:
        ...     logits = adapting(batch)
    """
    training_settings = {"optimizer": optimizer, "lr": lr, **settings}
    for name, value in training_settings.items():
        if not stream_method(method).trains and value is not None:
            raise BadSetting(
                f"{named(name, value)} has no effect with {named('method', method)}, which trains nothing",
                "leave it out",
                setting=name,
            )
    learning_rate = 1e-3 if lr is None else lr
    return Online(model, method, optimizer or "adam", learning_rate, augment, settings, output, batch_norm)
