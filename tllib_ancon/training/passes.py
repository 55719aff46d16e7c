"""One pass of a model over a domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.worker_pool import WorkerPool
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.processes import Shard


class Predictions(NamedTuple):
    """Outputs of a model on N images: their indices (N,), features (N, D) and logits (N, K), float32 on its device."""

    indices: Tensor
    features: Tensor
    logits: Tensor


Record = Callable[[Predictions], Mapping[str, Any]]
"""Scores predictions against labels for the record. A training loop stores what it returns and never reads it."""

RECORDED = ("accuracy", "ece")
"""What is shown of an epoch where a record is kept."""


def device() -> torch.device:
    """Where a model is evaluated outside a training."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def evaluation_loader(
    domain: Domain, transform: Callable[[Any], Any], batch_size: int, workers: int | WorkerPool
) -> ImageLoader:
    """A loader of (index, image) over a domain in its own order; each of many processes has its share, and all have as
    many images (:attr:`~tllib_ancon.self_training.processes.Shard.padded_positions`)."""
    share = Shard.of_this_process(len(domain)).padded_positions
    return ImageLoader(UnlabelledImages(domain, transform), batch_size, workers, share)


@torch.inference_mode()
def predict_domain(model: Classifier, batches: Iterable[Any], device: torch.device, num_images: int) -> Predictions:
    """Evaluate ``model`` on every image of an :func:`evaluation_loader`; the model is left in evaluation mode.

    Many processes evaluate the model of the first one, buffers included, and all get the predictions on all images in
    the domain's order.

    Args:
        batches: of the loader
        num_images: of all batches together, :attr:`~tllib_ancon.data.loading.ImageLoader.num_images`
    """
    processes.broadcast(model.buffers())
    model.eval()
    indices, features, logits = (_Rows(num_images) for _ in Predictions._fields)
    for batch_indices, images in batches:
        batch_logits, batch_features = model.predict(images.to(device, non_blocking=True))
        indices.add(batch_indices)
        features.add(batch_features.float())
        logits.add(batch_logits.float())
    return _gather(Predictions(indices.tensor, features.tensor, logits.tensor))


class _Rows:
    """The rows of all batches in one tensor from the first batch on: small tensors that stay between the large ones of
    the network would keep the memory of these."""

    def __init__(self, count: int):
        self.count = count
        self.filled = 0
        self.tensor = torch.empty(0)

    def add(self, batch: Tensor) -> None:
        if not self.filled:
            self.tensor = batch.new_empty(self.count, *batch.shape[1:])
        self.tensor[self.filled : self.filled + len(batch)] = batch
        self.filled += len(batch)


def _gather(share: Predictions) -> Predictions:
    """The predictions of all processes without what was repeated; image i lies in row i, as no image is left out."""
    if processes.world_size() == 1:
        return share
    indices, features, logits = (processes.interleave(part.to(share.logits.device)) for part in share)
    num_samples = int(indices.max()) + 1
    return Predictions(indices[:num_samples].cpu(), features[:num_samples], logits[:num_samples])
