"""Plain self-training: one-hot pseudo-labels and the cross-entropy against them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tllib_ancon.methods import COMPOSITIONS, register
from tllib_ancon.self_training.belief_matching import belief_matching_loss
from tllib_ancon.self_training.mc_dropout import Confidence
from tllib_ancon.self_training.method import Method, Task, options_of


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of H(f, ỹ) = - Σ_k ỹ_k log f_k for targets (B, K) of any mass; a float32 scalar."""
    return -(targets * logits.float().log_softmax(1)).sum(1).mean()


@register("self-training", options=options_of(belief_matching_loss, Confidence), composes=COMPOSITIONS)
def self_training(task: Task, options: Any) -> Method:
    if options.confidence == "belief-matching":
        return Method(lambda visit, targets: belief_matching_loss(visit.logits, targets, options.belief_coefficient))
    return Method(lambda visit, targets: cross_entropy(visit.logits, targets))
