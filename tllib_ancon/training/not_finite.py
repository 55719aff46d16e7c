"""Errors that name the images for which a model has no finite output."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.labels import Labels
from tllib_ancon.data.loading import evaluation_loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import NotFinite, UserError
from tllib_ancon.runtime.text import first_few
from tllib_ancon.training.inference import predict_domain

MOST_NAMED = 3
"""Images at most whose names an error lists."""


def predicted_classes(outputs: NDArray[np.float32]) -> Labels:
    """(N, K) logits or probabilities -> (N,) classes; -1 for a row with NaN."""
    classes = np.asarray(outputs.argmax(1), np.int64)
    return np.where(np.isnan(outputs).any(1), -1, classes)


def require_predictions(classes: Labels, images: ImageSource, model: str = "model") -> None:
    """Raise the error of :func:`without_output` for classes of -1."""
    missing = np.flatnonzero(classes < 0)
    if len(missing):
        raise without_output(missing, images, model)


def without_output(missing: Labels, images: ImageSource, model: str = "model") -> UserError:
    """The error for images, by their positions in the domain, on which a model's logits are not finite."""
    if len(missing) == len(images):
        return UserError(
            f"the {model}'s logits are not finite on any image: its weights are damaged, a transform returns NaN, or "
            "its forward masks classes by infinity. Give another checkpoint, repair the transform, or mask by -1000"
        )
    names = first_few([_name(images, position) for position in missing.tolist()], MOST_NAMED)
    return UserError(
        f"the {model}'s logits are not finite on {len(missing):,} of {len(images):,} images: {names}. Leave "
        "these images out, or mend the network where it divides by 0"
    )


def _name(images: ImageSource, position: int) -> str:
    """Path of an image, or its number."""
    if images.paths is None:
        return f"image {images.positions[position]}"
    return str(images.paths[position])


def explained(
    error: NotFinite, source_model: Callable[[], Classifier], images: ImageSource, transform: Transform, batch_size: int
) -> UserError:
    """The error that names the images on which the source model has no finite logits, where there are such images."""
    if processes.world_size() > 1:
        return error
    loader = evaluation_loader(images, transform, batch_size, 0)
    model = source_model().to(devices.device())
    _, features, logits = predict_domain(model, loader, devices.device(), len(images), len(images))
    is_finite = logits.isfinite().all(1) & features.isfinite().all(1)
    missing = np.flatnonzero(~is_finite.cpu().numpy())
    if not len(missing):
        return error
    return without_output(missing, images, "source model")
