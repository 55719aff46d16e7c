"""The criterion that needs more than a model's predictions: what it says when features are dropped."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon import selection
from tllib_ancon.self_training.mc_dropout import mc_dropout_probabilities
from tllib_ancon.training.passes import Predictions

PASSES, PROBABILITY = 10, 0.5
MOST_SAMPLES = 4096
"""Of more, so many are drawn, always the same, and stand for all: T N K probabilities are held at once."""


def dropout_passes(features: Tensor, head: nn.Module) -> Tensor:
    """(N, D) -> (T, N, K) probabilities of ten passes through the head with dropout of 0.5. The masks are the same in
    every call and on every device, and no other random number is drawn."""
    generator = torch.Generator().manual_seed(0)
    return torch.stack([mc_dropout_probabilities(features, head, 1, PROBABILITY, generator) for _ in range(PASSES)])


def scores_under_dropout(predictions: Predictions, head: nn.Module | None) -> dict[str, float]:
    """The scores by the criteria that need :func:`dropout_passes`; none without a head.

    Source: Lee et al., "AETTA: Label-Free Accuracy Estimation for Test-Time Adaptation", CVPR 2024.
    """
    if head is None:
        return {}
    features, logits = predictions.features, predictions.logits
    if len(features) > MOST_SAMPLES:
        order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))[:MOST_SAMPLES]
        features, logits = features[order.to(features.device)], logits[order.to(logits.device)]
    names = [name for name in selection.CRITERIA if selection.needs_dropout(name)]
    return selection.score_all(logits.softmax(1), names, dropout_passes(features, head))
