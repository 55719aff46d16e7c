"""One pass of a model over a domain, and the scores of its predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon import evaluation, processes, selection
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages, WorkerPool
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.processes import Shard
from tllib_ancon.self_training.mc_dropout import mc_dropout_probabilities

View = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) -> another view of each."""


class Predictions(NamedTuple):
    """Outputs of a model on N images: their indices (N,), features (N, D) and logits (N, K), float32 on its device."""

    indices: Tensor
    features: Tensor
    logits: Tensor


def evaluation_loader(
    domain: Domain, transform: Callable[[Any], Any], batch_size: int, workers: int | WorkerPool
) -> ImageLoader:
    """A loader of (index, image) over a domain in its own order; each of many processes has its part, and all have as
    many images (:attr:`~tllib_ancon.processes.Shard.padded_positions`)."""
    positions = Shard.of_this_process(len(domain)).padded_positions
    return ImageLoader(UnlabelledImages(domain, transform), batch_size, workers, positions)


def joined(batches: Iterable[tuple[Tensor, ...]], num_rows: int) -> list[Tensor]:
    """The ``num_rows`` rows of all batches, of each tensor in a batch. From the first batch on they have one memory:
    small tensors between the network's large ones would keep theirs."""
    parts: list[Tensor] = []
    start = 0
    for batch in batches:
        parts = parts or [rows.new_empty(num_rows, *rows.shape[1:]) for rows in batch]
        for whole, rows in zip(parts, batch, strict=True):
            whole[start : start + len(rows)] = rows
        start += len(batch[0])
    return parts


@torch.inference_mode()
def predict_domain(
    model: nn.Module, batches: Iterable[Any], device: torch.device, num_images: int, view: View | None = None
) -> Predictions:
    """Evaluate a model on the ``num_images`` images of an :func:`evaluation_loader`; it is left in evaluation mode. One
    that is no ``Classifier`` gives logits alone, hence no features. Many processes evaluate the model of the main one,
    buffers included, and all get the predictions on all images in the domain's order."""
    processes.broadcast(model.buffers())
    model.eval()

    def predictions() -> Iterator[tuple[Tensor, ...]]:
        for indices, images in batches:
            images = images.to(device, non_blocking=True)
            images = images if view is None else view(images)
            if isinstance(model, Classifier):
                logits, features = model.predict(images)
            else:
                logits = model(images)
                features = logits.new_empty(len(logits), 0)
            yield indices, features.float(), logits.float()

    parts = joined(predictions(), num_images)
    if processes.world_size() > 1:
        parts = [processes.interleave(part.to(parts[-1].device)) for part in parts]
        count = int(parts[0].max()) + 1  # the rest is repeated
        parts = [parts[0][:count].cpu(), *(part[:count] for part in parts[1:])]
    return Predictions(*parts)


def recorder(target: Domain) -> Callable[[Predictions], dict[str, Any]] | None:
    """A function that scores predictions on the target for the record; None where the target has no labels."""
    if target.labels is None:
        return None
    labels, count = torch.from_numpy(target.labels), target.num_classes
    return lambda predictions: evaluation.summarize(predictions.logits.cpu(), labels[predictions.indices], count)


PASSES, PROBABILITY = 10, 0.5
MOST_SAMPLES = 4096
"""Largest number of samples for dropout passes, as T N K probabilities are held at once. Of more, always the same are
drawn."""


def dropout_passes(features: Tensor, head: nn.Module) -> Tensor:
    """(N, D) -> (T, N, K) probabilities of ten passes through the head with dropout of 0.5. The masks are the same in
    every call and on every device, and no other random number is drawn."""
    generator = torch.Generator().manual_seed(0)
    return torch.stack([mc_dropout_probabilities(features, head, 1, PROBABILITY, generator) for _ in range(PASSES)])


def scores_under_dropout(predictions: Predictions, head: nn.Module | None) -> dict[str, float]:
    """AETTA of a model, by :func:`dropout_passes`; nothing without a head. Source: Lee et al., "AETTA: Label-Free
    Accuracy Estimation for Test-Time Adaptation", CVPR 2024."""
    if head is None:
        return {}
    features, logits = predictions.features, predictions.logits
    if len(features) > MOST_SAMPLES:
        order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))[:MOST_SAMPLES]
        features, logits = features[order.to(features.device)], logits[order.to(logits.device)]
    return {"aetta": selection.aetta(logits.softmax(1), dropout_passes(features, head))}
