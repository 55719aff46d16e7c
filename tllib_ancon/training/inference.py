"""One pass of a model over a domain."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import View
from tllib_ancon.models.classifier import LogitsAndFeatures
from tllib_ancon.runtime import processes


class Outputs(NamedTuple):
    """Outputs of a model on N images: their indices (N,), features (N, D) and logits (N, K), float32 on its device."""

    indices: Tensor
    features: Tensor
    logits: Tensor


@torch.inference_mode()
def run_network(
    predict: Callable[[Any], LogitsAndFeatures],
    loader: ImageLoader,
    batches: Iterable[Any],
    view: View | None = None,
) -> Outputs:
    """Run a network over many items. Of many processes all get the outputs for all items, in the order of the domain.

    Args:
        predict: items of a batch -> logits (B, K) and features (B, D)
        loader: of the items, :func:`~tllib_ancon.data.loading.evaluation_loader`'s
        batches: what it yields, indices (B,) and items
        view: items -> another view of each, which is predicted in their place. Default: the items
    """

    def rows() -> Iterator[tuple[Tensor, ...]]:
        for indices, items in batches:
            logits, features = predict(items if view is None else view(items))
            yield indices, features.float(), logits.float()

    parts = [torch.cat(batches_of_part) for batches_of_part in zip(*rows(), strict=True)]
    if processes.world_size() > 1:
        total = len(loader.dataset)
        indices, *rest = [processes.interleave(part.to(parts[-1].device))[:total] for part in parts]
        return Outputs(indices.cpu(), *rest)
    return Outputs(*parts)


def without_features(network: Callable[[Any], Tensor], images: Any) -> LogitsAndFeatures:
    """Logits of a network, and features (B, 0)."""
    logits = network(images)
    return logits, logits.new_empty(len(logits), 0)
