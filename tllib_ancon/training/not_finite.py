"""Errors that name the images for which a model has no finite output."""

import numpy as np
import torch
from numpy.typing import NDArray

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.loading import evaluation_loader
from tllib_ancon.opening.open import Opened
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import NotFinite
from tllib_ancon.runtime.text import first_few
from tllib_ancon.training.inference import predict_domain

MOST_NAMED = 3
"""Images at most whose names an error lists."""


def predicted_classes(outputs: NDArray[np.float32]) -> Labels:
    """(N, K) logits or probabilities -> (N,) classes; -1 for a row with NaN."""
    classes = np.asarray(outputs.argmax(1), np.int64)
    return np.where(np.isnan(outputs).any(1), -1, classes)


def require_predictions(classes: Labels, images: ImageSource, model: str = "model") -> None:
    """Raise the error for images whose class is -1: a model's logits are not finite there."""
    missing = np.flatnonzero(classes < 0)
    if len(missing) == 0:
        return
    names = [f"image {position}" for position in images.positions]
    if images.paths is not None:
        names = [*images.paths]
    where = f"{len(missing):,} of {len(images):,} images: {first_few([names[i] for i in missing], MOST_NAMED)}"
    action = "leave these images out, or mend the network where it divides by 0"
    if len(missing) == len(images):
        where = "any image: its weights are damaged, a transform returns NaN, or its forward masks classes by infinity"
        action = "give another checkpoint, repair the transform, or mask by -1000"
    raise NotFinite(f"the {model}'s logits are not finite on {where}", action)


def require_finite_source(opened: Opened[AdaptConfig]) -> None:
    """Raise the error that names the images on which the source model has no finite logits, if there are some."""
    if processes.world_size() > 1:
        return
    images = opened.images
    loader = evaluation_loader(images, opened.transforms.evaluation, opened.settings.batch_size, 0)
    model = opened.source_model().to(devices.device())
    _, features, logits = predict_domain(model, loader, devices.device(), len(images), len(images))
    is_finite = logits.isfinite().all(1) & features.isfinite().all(1)
    classes = torch.where(is_finite, logits.argmax(1), -1)
    require_predictions(classes.cpu().numpy(), images, "source model")
