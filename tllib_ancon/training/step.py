"""The loss of a step: that of the method on one or two views of each image."""

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.transforms import View
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.self_training.method import Method
from tllib_ancon.training.trainer import Step, Trainer

Target = tuple[Tensor, Tensor]
"""Positions (B,) among the images to adapt on, and their images."""


class AdaptationStep:
    """The loss of a batch. Both views go through the network together.

    Args:
        method: from positions, logits (B, K) and features (B, D) of the first view, and of the second, to the loss
        trainer: whose model predicts with gradient
        transforms: augmentation on the device, and the second view
        settings: the number of views and dropout
        policy: of batch-norm
    """

    def __init__(
        self, method: Method, trainer: Trainer, transforms: Transforms, settings: AdaptConfig, policy: BatchNormPolicy
    ):
        self.method = method
        self.trainer = trainer
        self.augment = transforms.augment
        self.second_view: View | None = transforms.second_view if settings.views == 2 else None
        self.dropout = settings.dropout
        self.policy = policy

    def set_mode(self, model: nn.Module) -> None:
        """Batch-norm by the policy, and the rest in evaluation mode."""
        self.policy.set_mode(self.trainer.network, self.dropout)

    def __call__(self, target: Target) -> Step:
        indices, images = target
        count = len(indices)
        views = self._views(images)
        logits, features = self.trainer.outputs(torch.cat(views))
        second_view = None
        if len(views) == 2:
            second_view = (logits[count:], features[count:])
        loss = self.method(indices, logits[:count], features[:count], second_view)
        return loss, logits[:count], self.method.diagnostics()

    def _views(self, images: Tensor) -> list[Any]:
        first_view = images
        if self.augment is not None:
            first_view = self.augment(images)
        if self.second_view is None:
            return [first_view]
        return [first_view, self.second_view(first_view)]
