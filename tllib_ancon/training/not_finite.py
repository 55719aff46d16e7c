"""Images for which a model has no finite output: they have no class, and an error names them."""

import numpy as np
import torch
from torch import Tensor

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.labels import Labels
from tllib_ancon.runtime.errors import NotFinite
from tllib_ancon.runtime.text import first_few

MOST_NAMED = 3
"""Images at most whose names an error lists."""


def predicted_classes(outputs: Tensor) -> Tensor:
    """(N, K) logits or probabilities -> (N,) classes; -1 for a row that is not finite."""
    return torch.where(outputs.isfinite().all(1), outputs.argmax(1), -1).cpu()


def require_predictions(classes: Labels, images: ImageSource, model: str = "model") -> None:
    """Raise the error for images whose class is -1: a model's logits are not finite there."""
    missing = np.flatnonzero(classes < 0).tolist()
    if not missing:
        return
    if len(missing) == len(images):
        raise NotFinite(
            f"the {model}'s logits are not finite on any image: its weights are damaged, a transform returns NaN, or "
            "its forward masks classes by infinity",
            "give another checkpoint, repair the transform, or mask by -1000",
        )
    names = [f"image {position}" for position in images.positions]
    if images.paths is not None:
        names = [*images.paths]
    shown = first_few([names[row] for row in missing], MOST_NAMED)
    raise NotFinite(
        f"the {model}'s logits are not finite on {len(missing):,} of {len(images):,} images: {shown}",
        "leave these images out, or mend the network where it divides by 0",
    )
