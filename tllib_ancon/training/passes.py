"""One pass of a model over a domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.models.classifier import Classifier


class Predictions(NamedTuple):
    """What a model says of N images: their indices (N,), features (N, D) and logits (N, K), float32 on its device."""

    indices: Tensor
    features: Tensor
    logits: Tensor


def evaluation_loader(domain: Domain, transform: Callable[[Any], Any], batch_size: int, workers: int) -> ImageLoader:
    """A loader of (index, image) over a domain in its own order."""
    return ImageLoader(UnlabelledImages(domain, transform), batch_size, workers)


@torch.inference_mode()
def predict_domain(model: Classifier, loader: Iterable[Any], device: torch.device) -> Predictions:
    """Evaluate ``model`` on every image of ``loader``; the model is left in evaluation mode."""
    model.eval()
    indices, features, logits = [], [], []
    for batch_indices, images in loader:
        batch_logits, batch_features = model.predict(images.to(device, non_blocking=True))
        indices.append(batch_indices)
        features.append(batch_features.float())
        logits.append(batch_logits.float())
    return Predictions(torch.cat(indices), torch.cat(features), torch.cat(logits))
