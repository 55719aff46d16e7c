"""The criterion that needs more than a model's predictions: what it says when features are dropped."""

from __future__ import annotations

import torch
from torch import nn

from tllib_ancon import selection
from tllib_ancon.training.passes import Predictions

PASSES, PROBABILITY = 10, 0.5
MOST_SAMPLES = 4096
"""Of more, so many are drawn, always the same, and stand for all: T N K probabilities are held at once."""


@torch.no_grad()
def scores_under_dropout(predictions: Predictions, head: nn.Module | None) -> dict[str, float]:
    """The score by ``aetta``, from ten passes of the features through the head with dropout of 0.5; nothing without a
    head. The masks are the same in every call and on every device, and no other random number is drawn.

    Source: Lee et al., "AETTA: Label-Free Accuracy Estimation for Test-Time Adaptation", CVPR 2024.
    """
    if head is None:
        return {}
    features, logits = predictions.features, predictions.logits
    if len(features) > MOST_SAMPLES:
        order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))[:MOST_SAMPLES]
        features, logits = features[order.to(features.device)], logits[order.to(logits.device)]
    generator = torch.Generator().manual_seed(0)
    kept = (torch.empty(features.shape).bernoulli_(1 - PROBABILITY, generator=generator) for _ in range(PASSES))
    passes = [head(features * mask.to(features.device) / (1 - PROBABILITY)).float().softmax(1) for mask in kept]
    return selection.score_all(logits.softmax(1), ["aetta"], torch.stack(passes))
