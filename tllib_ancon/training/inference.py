"""One pass of a model over a domain, and the scores of its predictions."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.data.transforms import View
from tllib_ancon.models.classifier import Classifier, LogitsAndFeatures
from tllib_ancon.runtime import processes


class Outputs(NamedTuple):
    """Outputs of a model on N images: their indices (N,), features (N, D) and logits (N, K), float32 on its device."""

    indices: Tensor
    features: Tensor
    logits: Tensor


def _joined(batches: Iterable[tuple[Tensor, ...]], num_rows: int) -> list[Tensor]:
    """The ``num_rows`` rows of all batches, in one memory: many small tensors would fragment it."""
    parts: list[Tensor] = []
    start = 0
    for batch in batches:
        parts = parts or [rows.new_empty(num_rows, *rows.shape[1:]) for rows in batch]
        for whole, rows in zip(parts, batch, strict=True):
            whole[start : start + len(rows)] = rows
        start += len(batch[0])
    return parts


@torch.inference_mode()
def run_network(
    predict: Callable[[Any], LogitsAndFeatures],
    batches: Iterable[Any],
    device: torch.device,
    num_rows: int,
    total: int,
    view: View | None = None,
    result_device: torch.device | None = None,
) -> Outputs:
    """Run a network over many items, and put the outputs of all processes together.

    Args:
        predict: items of a batch, on the device -> logits (B, K) and features (B, D)
        batches: pairs of indices (B,) and items; of many processes those of this one's share
        device: where the network lies
        num_rows: items of all these batches
        total: N, items of all processes, in whose order the outputs are
        view: items -> another view of each, which is predicted in their place. Default: the items
        result_device: where the outputs are collected. Default: where the network lies
    """

    collected_on = device if result_device is None else result_device

    def rows() -> Iterator[tuple[Tensor, ...]]:
        for indices, items in batches:
            moved = items.to(device, non_blocking=True)
            logits, features = predict(moved if view is None else view(moved))
            yield indices, features.float().to(collected_on), logits.float().to(collected_on)

    parts = _joined(rows(), num_rows)
    if processes.world_size() > 1:
        indices, *rest = [processes.interleave(part.to(parts[-1].device))[:total] for part in parts]
        return Outputs(indices.cpu(), *rest)
    return Outputs(*parts)


def predict_domain(
    model: nn.Module, batches: Iterable[Any], device: torch.device, num_rows: int, total: int, view: View | None = None
) -> Outputs:
    """Evaluate a network and leave it in evaluation mode; only a ``Classifier`` has features. Many processes evaluate
    the model of the main one, and all get the outputs for all images, in the domain's order. The other arguments are
    those of :func:`run_network`."""
    processes.broadcast(model.buffers())
    model.eval()

    def logits_alone(images: Any) -> LogitsAndFeatures:
        logits = model(images)
        return logits, logits.new_empty(len(logits), 0)

    predict = model.predict if isinstance(model, Classifier) else logits_alone
    return run_network(predict, batches, device, num_rows, total, view)
