"""A model that adapts to a stream: each batch is predicted, then learnt from, and not seen again."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.classifier import BATCH_NORMS, require_network
from tllib_ancon.models.copies import copy_of, recording_gradients
from tllib_ancon.models.outputs import ENOUGH, LogitsReader, find_logits, observe, output_for, two_logits
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.self_training.checks import validated
from tllib_ancon.self_training.eta import SampleEfficientEntropy
from tllib_ancon.self_training.roid import (
    certainty_and_diversity,
    corrected,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
)
from tllib_ancon.self_training.tent import softmax_entropy

OnlineMethod = Literal["tent", "adabn", "eta", "roid", "ancon-auto"]
Optimizer = Literal["adam", "sgd", "adamw"]
OPTIMIZERS = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
NORMS = (BATCH_NORMS, nn.LayerNorm, nn.GroupNorm)
SOURCE_WEIGHT = 0.01
"""Of the source model's parameters after each step of ROID."""
DECAY = 0.9
LARGEST_WEIGHT = 3.0


def mirrored(batch: Tensor) -> Tensor:
    """Images (B, C, H, W) with left and right swapped; other inputs unchanged."""
    return mirror(batch) if batch.ndim == 4 else batch


class Online(nn.Module):
    """A model that adapts to every batch that it predicts; :func:`online` makes it.

    ``state_dict`` holds the model, the moving average and the optimiser. ``reset`` restores the source model.
    """

    @validated
    @recording_gradients()
    def __init__(
        self,
        model: nn.Module,
        method: OnlineMethod,
        optimizer: Optimizer,
        lr: float,
        augment: Callable[[Tensor], Tensor],
        settings: Mapping[str, Any],
        head: str | None = None,
    ):
        super().__init__()
        self.model = copy_of(require_network(model, learns=True)).eval().requires_grad_(False)
        self.method, self.augment = method, augment
        self.head_names = [] if head is None else head.split(",")
        self.reader: LogitsReader | None = None  # found with the first batch
        layers = [layer for layer in self.model.modules() if isinstance(layer, NORMS)]
        self.batch_norms = [layer for layer in layers if isinstance(layer, BATCH_NORMS)]
        self.parameters_adapted = [one for layer in layers for one in layer.parameters()]
        if not (self.batch_norms if method == "adabn" else self.parameters_adapted):
            kind = "batch-norm" if method == "adabn" else "normalisation"
            raise UserError(f"`method={method}` needs {kind} layers, and this model has none; pass a model with them")
        for layer in self.batch_norms:
            layer.train()
        for parameter in self.parameters_adapted:
            parameter.requires_grad_(method != "adabn")
        self.optimizer = OPTIMIZERS[optimizer](self.parameters_adapted, lr=lr, **settings)
        self.average: Tensor | None = None  # of the predictions, (K,)
        self.source = copy.deepcopy(self.state_dict())
        self.anchors = copy.deepcopy(self.parameters_adapted)

    def forward(self, batch: Tensor) -> Any:
        """Predict this batch with its own batch-norm statistics, then learn from it."""
        if len(batch) < 2 and self.batch_norms:
            raise UserError("a batch of one sample has no batch-norm statistics; collect at least two samples")
        with recording_gradients():
            normal_batch = batch.clone() if batch.is_inference() else batch
            if self.method == "adabn":
                with torch.no_grad():
                    return output_for(self.model, normal_batch)
            return self._learn_from(normal_batch)

    def _learn_from(self, batch: Tensor) -> Tensor:
        if self.reader is None:
            self.reader = self._find_logits(batch[:ENOUGH])
        logits, average = self.reader.raw(output_for(self.model, batch)), self.average
        loss, prediction = self._loss(batch, logits)
        if not (loss.isfinite() and prediction.isfinite().all()):
            self.average = average
            raise UserError("predictions or loss of this batch are not finite; leave out samples with NaN")
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.method == "roid":
            with torch.no_grad():
                for parameter, anchor in zip(self.parameters_adapted, self.anchors, strict=True):
                    parameter.lerp_(anchor.to(parameter), SOURCE_WEIGHT)
        prediction = prediction.detach()
        return prediction[:, 1:] - prediction[:, :1] if logits.shape[1] == 1 else prediction

    def _find_logits(self, batch: Tensor) -> LogitsReader:
        observed = observe(self.model, batch, self.head_names or None)
        reader = find_logits(self.model, batch, observed, self.head_names)
        for note in reader.notes:
            warnings.warn(note, stacklevel=5)
        return reader

    @recording_gradients()
    def reset(self) -> None:
        """Restore the source model, the moving average and the optimiser."""
        self.load_state_dict(self.source)

    def get_extra_state(self) -> dict[str, Any]:
        return {"average": self.average, "optimizer": self.optimizer.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        state = copy.deepcopy(state)
        self.average = state["average"]
        self.optimizer.load_state_dict(state["optimizer"])

    def _loss(self, batch: Tensor, logits: Any) -> tuple[Tensor, Tensor]:
        if not isinstance(logits, Tensor) or logits.ndim < 2:
            raise UserError(f"`method={self.method}` needs logits (B, K), and this model has none; choose adabn")
        logits = two_logits(logits)
        if self.method == "tent":
            return softmax_entropy(logits.movedim(1, -1).flatten(0, -2)).mean(), logits
        if logits.ndim != 2:
            raise UserError(
                f"`method={self.method}` needs one class for each sample, and the logits have shape "
                f"{tuple(logits.shape)}; choose tent or adabn"
            )
        num_classes = logits.shape[1]
        if self.method == "eta":
            selection = SampleEfficientEntropy(num_classes).to(logits.device)
            if self.average is not None:
                selection.average.copy_(self.average)
            loss, self.average = selection(logits), selection.average
            return loss, logits
        before = logits.new_full((num_classes,), 1 / num_classes) if self.average is None else self.average.to(logits)
        self.average = logits.detach().float().softmax(1).mean(0).lerp(before, DECAY)
        assert self.reader is not None
        other = self.reader(output_for(self.model, self.augment(batch)))
        if self.method == "ancon-auto":
            return _class_weighted(logits, other, self.average), logits
        weights = certainty_and_diversity(logits, before)
        losses = soft_likelihood_ratio(logits) + symmetric_cross_entropy(logits, other)
        return (weights * losses).mean(), corrected(logits)


def online(
    model: nn.Module,
    method: OnlineMethod = "roid",
    optimizer: Optimizer | None = None,
    lr: float | None = None,
    augment: Callable[[Tensor], Tensor] = mirrored,
    head: str | None = None,
    **settings: Any,
) -> Online:
    """Wrap a model so that it adapts to every batch that it predicts.

    Args:
        model: any module from a batch to logits (B, K). With ``tent`` also (B, K, H, W), with ``adabn`` any output. A
            copy is adapted
        method: ``tent``, ``adabn``, ``eta``, ``roid`` or ``ancon-auto``. A stream shows each sample once, so that
            ``ancon-auto`` has no votes here: it weights pseudo-labels of two views by class. Default: ``roid``
        optimizer: of scale and shift of the normalisation layers, which are trained. Default: ``adam``. ``adabn``
            trains nothing and takes no setting of an optimiser
        lr (float): learning rate. Default: 0.001
        augment: batch -> batch, the second view of ``roid`` and ``ancon-auto``. Default: the mirror image of images
        head: dotted name of the model's head, for a model that returns several tensors
        **settings: of the optimiser, such as ``betas`` or ``momentum``

    Returns: a module; calling it with a batch returns the predictions

    Raises:
        UserError: an unknown method or optimiser, a setting without effect, a model without normalisation layers, a
            batch of one sample

    Example::

        >>> adapting = tllib_ancon.online(model, method="tent")
        >>> for batch in stream:
        ...     logits = adapting(batch)
    """
    chosen = {"optimizer": optimizer, "lr": lr, **settings}
    for name, value in chosen.items():
        if method == "adabn" and value is not None:
            raise UserError(f"`{name}={value}` has no effect with `method=adabn`, which trains nothing; leave it out")
    return Online(model, method, optimizer or "adam", 1e-3 if lr is None else lr, augment, settings, head)


def _class_weighted(logits: Tensor, other: Tensor, mean: Tensor) -> Tensor:
    """Cross-entropy with pseudo-labels by the mean of two views; each class weighs 1 / (K times its frequency)."""
    with torch.no_grad():
        labels = (logits.float().softmax(1) + other.float().softmax(1)).argmax(1)
        weights = (1 / (len(mean) * mean).clamp(min=1e-6)).clamp(max=LARGEST_WEIGHT)[labels]
    rows = torch.arange(len(labels), device=labels.device)
    both = (logits.float().log_softmax(1) + other.float().log_softmax(1))[rows, labels] / 2
    return -(weights * both).mean()
