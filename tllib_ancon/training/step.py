"""The loss of a step: that of the method on one or two views of each image."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tllib_ancon.data.batches import Batch, concatenated, to_device
from tllib_ancon.data.transforms import View
from tllib_ancon.models.classifier import LogitsAndFeatures
from tllib_ancon.self_training.method import Method
from tllib_ancon.training.image_transforms import Transforms
from tllib_ancon.training.loop import Step

Target = tuple[Tensor, Batch]
"""Positions (B,) among the images to adapt on, and their images."""


class AdaptationStep:
    """The loss of a batch. Both views go through the network together.

    Args:
        method: from positions, logits (B, K) and features (B, D) of the first view, and of the second, to the loss
        outputs: images -> logits and features, with gradient
        transforms: augmentation on the device, and the second view
        views: 1 or 2
        device: of the network
    """

    def __init__(
        self,
        method: Method,
        outputs: Callable[[Batch], LogitsAndFeatures],
        transforms: Transforms,
        views: int | None,
        device: torch.device,
    ):
        self.method = method
        self.outputs = outputs
        self.augment = transforms.augment
        self.second_view: View | None = transforms.second_view if views == 2 else None
        self.device = device

    def __call__(self, target: Target) -> Step:
        indices, images = target
        count = len(indices)
        views = self._views(images)
        logits, features = self.outputs(concatenated(views))
        second_view = None
        if len(views) == 2:
            second_view = (logits[count:], features[count:])
        loss = self.method(indices, logits[:count], features[:count], second_view)
        return loss, logits[:count], self.method.diagnostics()

    def probabilities(self, target: Target) -> Tensor:
        """(V, B, K) of each view."""
        _, images = target
        probabilities = []
        for view in self._views(images):
            logits, _ = self.outputs(view)
            probabilities.append(logits.float().softmax(1))
        return torch.stack(probabilities)

    def augmented(self, images: Batch) -> Any:
        """Images on the device, as training sees them."""
        moved = to_device(images, self.device)
        if self.augment is None:
            return moved
        return self.augment(moved)

    def _views(self, images: Batch) -> list[Any]:
        first_view = self.augmented(images)
        if self.second_view is None:
            return [first_view]
        return [first_view, self.second_view(first_view)]
