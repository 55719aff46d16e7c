"""Temporal anchors for spatial neighbours: f̄ mixed into the neighbours' predictions."""

from __future__ import annotations

import torch
from torch import Tensor

from tllib_ancon.errors import UserError


def mix_votes(anchors: Tensor, scores: Tensor, weight: float) -> Tensor:
    """The authors' mixing, w f̄ + (1 - w) s, with f̄ the raw number of votes: 1 / w of them take it beyond 1.

    Args:
        anchors: (B, K) votes of the batch's samples
        scores: (B, M, K) predictions of their M neighbours
        weight (float): w in [0, 1]

    Returns: (B, M, K)
    """
    return weight * anchors.unsqueeze(1) + (1 - weight) * scores


def mix_distribution(anchors: Tensor, scores: Tensor, weight: float) -> Tensor:
    """The corrected mixing: f̄ is first made a distribution; a sample without a vote keeps s alone.

    Args, returns: as :func:`mix_votes`; the rows of the result are distributions
    """
    mass = anchors.sum(1, keepdim=True)
    distribution = anchors / mass.clamp_min(torch.finfo(anchors.dtype).tiny)
    return torch.where(mass.unsqueeze(1) > 0, mix_votes(distribution, scores, weight), scores)


def mix_as_vote(anchors: Tensor, scores: Tensor, weight: float) -> Tensor:
    """The prediction as one more vote, (f̄ + s) / (1 + Q): the votes' distribution has the weight Q / (1 + Q), with Q
    the sample's votes.

    Args, returns: as :func:`mix_distribution`; ``weight`` is unused
    """
    counted = anchors.unsqueeze(1) + scores
    return counted / (1 + anchors.sum(1, keepdim=True).unsqueeze(1))


MIXINGS = {"authors": mix_votes, "normalized": mix_distribution, "adaptive": mix_as_vote}


def check_anchors(anchors: Tensor, logits: Tensor) -> None:
    """Raise :class:`UserError` unless ``anchors`` has the shape of ``logits``."""
    if anchors.shape != logits.shape:
        raise UserError(f"anchors have shape {tuple(anchors.shape)}; expected {tuple(logits.shape)}, votes per sample")


def check_anchor_weight(weight: float) -> None:
    """Raise :class:`UserError` unless ``weight`` lies in [0, 1]."""
    if not 0 <= weight <= 1:
        raise UserError(f"anchor_weight={weight}: expected a value in [0, 1]")
