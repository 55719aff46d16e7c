"""The predictions of a model on pictures: classes and probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tllib_ancon.config import PredictConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import as_domain
from tllib_ancon.errors import UserError
from tllib_ancon.models.preprocessing import preprocessing_of
from tllib_ancon.training import pictures, starts
from tllib_ancon.training.passes import device, evaluation_loader
from tllib_ancon.training.pictures import Transform
from tllib_ancon.training.reproducibility import using_threads


@dataclass(frozen=True)
class Predictions:
    """Predictions on N images.

    Attributes:
        probabilities: (N, K) float32; each row sums to 1
        indices: (N,) int64, position of each image in what was given
        paths: (N,) files of the images; None where they are no files
    """

    probabilities: NDArray[np.float32]
    indices: NDArray[np.int64]
    paths: Sequence[str] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) int64, the class of the largest probability."""
        labels: NDArray[np.int64] = self.probabilities.argmax(1).astype(np.int64)
        return labels


def predict(
    model: nn.Module | str | Path,
    images: Any,
    *,
    evaluation_transform: Transform | None = None,
    **settings: Any,
) -> Predictions:
    """Predict the classes of images.

    Args:
        model: any module from images (B, C, H, W) to logits (B, K), such as the ``model`` of an
            :class:`~tllib_ancon.training.adapt.AdaptationResult`; it is evaluated where it is, and its mode stays. Or a
            checkpoint or run directory
        images: as for :func:`tllib_ancon.adapt`
        evaluation_transform: item -> tensor (C, H, W). Default: for pictures that of the model's timm or torchvision
            metadata, or of its run directory; tensors are taken as they come
        **settings: of :class:`~tllib_ancon.config.PredictConfig`, such as ``batch_size=64`` or ``workers=2``

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)
    """
    config = PredictConfig(**{"quiet": True, **settings})
    with using_threads(config.threads):
        return _predict(config, model, images, evaluation_transform)


def _predict(
    config: PredictConfig, model: nn.Module | str | Path, images: Any, evaluation_transform: Transform | None
) -> Predictions:
    if isinstance(model, nn.Module):
        config.refuse_beside_a_model()
        domain = as_domain(images, labels=False)
        network, preprocessing = model, preprocessing_of(model)
    else:
        start = starts.find_start(str(model))
        config = starts.inherited(config.replace(checkpoint=str(model)), start)
        domain = as_domain(images, labels=False, classes=start.classes)
        network = starts.start_classifier(config, start, len(start.classes) if start.classes else None)
        network.to(device())
        preprocessing = network.preprocessing
    config = pictures.with_picture_defaults(config, preprocessing)
    transform = evaluation_transform or pictures.image_transforms(config, preprocessing, domain).evaluation
    chunks = probabilities(network, domain, transform, config.batch_size, config.workers)
    return Predictions(_joined(chunks, len(domain)), np.asarray(domain.positions, dtype=np.int64), domain.paths)


def _joined(chunks: Iterator[NDArray[np.float32]], count: int) -> NDArray[np.float32]:
    """All rows, (N, K), in one array from the first batch on: small arrays that stay between the large ones of the
    batches would keep the memory of these."""
    first = next(chunks)
    rows, done = np.empty((count, first.shape[1]), dtype=np.float32), 0
    for chunk in chain([first], chunks):
        rows[done : done + len(chunk)] = chunk
        done += len(chunk)
    return rows


@torch.inference_mode()
def probabilities(
    network: nn.Module, domain: Domain, transform: Transform, batch_size: int, workers: int
) -> Iterator[NDArray[np.float32]]:
    """The probabilities of each batch, (B, K); the images come in the domain's order.

    The network is evaluated where it is, and afterwards in the mode in which it was.

    Raises:
        UserError: its output is not (B, K)
    """
    place = next((tensor.device for tensor in network.parameters()), torch.device("cpu"))
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        for _, batch in evaluation_loader(domain, transform, batch_size, workers):
            logits = network(_laid_out(batch.to(place, non_blocking=True)))
            if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(batch):
                raise UserError("the model's output is not one row of logits an image, (B, K)")
            yield logits.float().softmax(1).cpu().numpy()
    finally:
        for module in training:
            module.training = True


def _laid_out(images: torch.Tensor) -> torch.Tensor:
    """Images for the layout that convolutions are faster in on a CPU, whatever that of their weights."""
    if images.ndim == 4 and images.device.type == "cpu":
        return images.contiguous(memory_format=torch.channels_last)
    return images
