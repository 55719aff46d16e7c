"""A model that adapts to a stream: each batch is predicted, then learnt from, and not seen again."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

from tllib_ancon.data.batches import Batch, are_images, num_rows, tree_map
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.classifier import BATCH_NORMS, require_network
from tllib_ancon.models.copies import copy_of, recording_gradients
from tllib_ancon.models.logits import ENOUGH, find_logits, observe
from tllib_ancon.models.outputs import LogitsReader, output_for, two_logits
from tllib_ancon.runtime.errors import UserError, unknown_name
from tllib_ancon.self_training.streams import StreamBatch, require_class_for_each_sample, stream_method

OPTIMIZERS = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
NORMS = (BATCH_NORMS, nn.LayerNorm, nn.GroupNorm)


def mirrored(batch: Any) -> Any:
    """Images (B, C, H, W) with left and right swapped; other inputs unchanged."""
    return mirror(batch) if are_images(batch) else batch


def _recordable(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of one of inference mode, which autograd cannot record."""
    return tensor.clone() if tensor.is_inference() else tensor


class Online(nn.Module):
    """A model that adapts to every batch that it predicts; :func:`online` makes it.

    ``state_dict`` holds the model, the moving average and the optimiser. ``reset`` restores the source model.
    """

    @recording_gradients()
    def __init__(
        self,
        model: nn.Module,
        method: str,
        optimizer: str,
        lr: float,
        augment: Callable[[Any], Any],
        settings: Mapping[str, Any],
        head: str | None = None,
    ):
        super().__init__()
        self.model = copy_of(require_network(model, learns=True)).eval().requires_grad_(False)
        self.method = method
        self.stream = stream_method(method)
        self.augment = augment
        self.head_names = [] if head is None else head.split(",")
        self.reader: LogitsReader | None = None  # found with the first batch
        layers = [layer for layer in self.model.modules() if isinstance(layer, NORMS)]
        self.batch_norms = [layer for layer in layers if isinstance(layer, BATCH_NORMS)]
        self.parameters_adapted = list(nn.ModuleList(layers).parameters())
        self._require_layers()
        for layer in self.batch_norms:
            layer.train()
        for parameter in self.parameters_adapted:
            parameter.requires_grad_(self.stream.trains)
        if optimizer not in OPTIMIZERS:
            raise unknown_name("optimizer", optimizer, OPTIMIZERS)
        self.optimizer = OPTIMIZERS[optimizer](self.parameters_adapted, lr=lr, **settings)
        self.average: Tensor | None = None  # of the predictions, (K,)
        self.source = copy.deepcopy(self.state_dict())
        self.anchors = copy.deepcopy(self.parameters_adapted)

    def _require_layers(self) -> None:
        if self.stream.trains and not self.parameters_adapted:
            kind = "normalisation"
        elif not self.stream.trains and not self.batch_norms:
            kind = "batch-norm"
        else:
            return
        raise UserError(f"`method={self.method}` needs {kind} layers, and this model has none; pass a model with them")

    def forward(self, batch: Batch) -> Any:
        """Predict this batch with its own batch-norm statistics, then learn from it."""
        if num_rows(batch) < 2 and self.batch_norms:
            raise UserError("a batch of one sample has no batch-norm statistics; collect at least two samples")
        with recording_gradients():
            normal_batch = tree_map(_recordable, batch)
            if self.stream.trains:
                return self._learn_from(normal_batch)
            with torch.no_grad():
                return output_for(self.model, normal_batch)

    def _learn_from(self, batch: Batch) -> Tensor:
        reader = self._reader_for(batch)
        outputs = reader.raw(output_for(self.model, batch))
        if not isinstance(outputs, Tensor) or outputs.ndim < 2:
            raise UserError(f"`method={self.method}` needs logits (B, K), and this model has none; choose adabn")
        logits = two_logits(outputs)
        require_class_for_each_sample(self.method, logits)

        def second_view() -> Tensor:
            second_logits: Tensor = reader(output_for(self.model, self.augment(batch)))
            return second_logits

        loss, predictions, average = self.stream.step(StreamBatch(logits, self.average, second_view))
        if not (loss.isfinite() and predictions.isfinite().all()):
            raise UserError("predictions or loss of this batch are not finite; leave out samples with NaN")
        self.average = average
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self._move_to_source()
        predictions = predictions.detach()
        if outputs.shape[1] == 1:
            return predictions[:, 1:] - predictions[:, :1]
        return predictions

    @torch.no_grad()
    def _move_to_source(self) -> None:
        """Move the parameters towards those of the source model, by the method's weight of these."""
        if self.stream.source_weight == 0:
            return
        for parameter, anchor in zip(self.parameters_adapted, self.anchors, strict=True):
            parameter.lerp_(anchor.to(parameter), self.stream.source_weight)

    def _reader_for(self, batch: Batch) -> LogitsReader:
        """Where logits are in the model's output, found with the first batch."""
        if self.reader is None:
            first_rows = tree_map(lambda rows: rows[:ENOUGH], batch)
            observed = observe(self.model, first_rows, self.head_names or None)
            self.reader = find_logits(self.model, first_rows, observed, self.head_names)
            for note in self.reader.notes:
                warnings.warn(note, stacklevel=5)
        return self.reader

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


def online(
    model: nn.Module,
    method: str = "roid",
    optimizer: str | None = None,
    lr: float | None = None,
    augment: Callable[[Any], Any] = mirrored,
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
    training_settings = {"optimizer": optimizer, "lr": lr, **settings}
    for name, value in training_settings.items():
        if not stream_method(method).trains and value is not None:
            raise UserError(
                f"`{name}={value}` has no effect with `method={method}`, which trains nothing; leave it out"
            )
    learning_rate = 1e-3 if lr is None else lr
    return Online(model, method, optimizer or "adam", learning_rate, augment, settings, head)
