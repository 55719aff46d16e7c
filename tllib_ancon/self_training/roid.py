"""ROID: the parts of its loss for a stream, and its correction of predictions by the class prior."""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tllib_ancon.self_training.checks import check_logits
from tllib_ancon.self_training.tent import softmax_entropy

TEMPERATURE = 1 / 3
CLIP = 0.99
"""Probability from which on the loss does not reward confidence."""


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    r"""Negative soft likelihood ratio of each prediction.

    .. math::
        L(f) = - \sum_k f_k \log \frac{f_k}{\sum_{j \ne k} f_j}

    Probabilities are clipped to at most 0.99, because the ratio has no upper bound.

    Shape: logits (B, K); output (B,) float32.

    Source: Marsden et al., "Universal Test-time Adaptation through Weight Ensembling, Diversity Weighting, and Prior
    Correction" (ROID), WACV 2024, Section 4.1.
    """
    check_logits(logits)
    probabilities = logits.float().softmax(1).clamp(1e-6, CLIP)
    return -(probabilities * (probabilities.log() - (1 - probabilities).log())).sum(1)


def symmetric_cross_entropy(logits: Tensor, second_logits: Tensor) -> Tensor:
    """Mean of both cross-entropies between two predictions of the same samples, (B, K) each: (B,) float32."""
    log_first = logits.float().log_softmax(1)
    log_second = second_logits.float().log_softmax(1)
    return -(log_second.exp() * log_first + log_first.exp() * log_second).sum(1) / 2


@torch.no_grad()
def certainty_and_diversity(logits: Tensor, mean: Tensor) -> Tensor:
    r"""Weight each sample of a batch: large for certain predictions that differ from the mean prediction.

    .. math::
        w_i = \exp\Big(\frac{d_i c_i}{\tau}\Big), \qquad d_i = 1 - \cos(f_i, \bar f), \qquad c_i = - H(f_i)

    with d and c scaled to [0, 1] within the batch and τ = 1/3. A sample with a d below the batch's mean gets weight 0.

    Shape: logits (B, K), mean prediction (K,); output (B,) float32 without gradient.
    """
    diversity = _scaled(1 - cosine_similarity(logits.float().softmax(1), mean[None]))
    weights = (diversity * _scaled(-softmax_entropy(logits)) / TEMPERATURE).exp()
    return weights.masked_fill(diversity < diversity.mean(), 0)


def corrected(logits: Tensor) -> Tensor:
    r"""Correct predictions by the batch's class prior: :math:`f \odot (\bar f + \gamma) / (1 + \gamma K)`.

    γ = max(1 / B, 1 / K) / max(f̄) smooths the prior f̄, the batch's mean prediction.

    Shape: logits (B, K); output log-probabilities (B, K) float32.
    """
    log_probabilities = logits.float().log_softmax(1)
    prior = log_probabilities.exp().mean(0)
    smoothing = max(1 / len(logits), 1 / logits.shape[1]) / prior.max()
    return (log_probabilities + (prior + smoothing).log()).log_softmax(1)


def _scaled(values: Tensor) -> Tensor:
    """The values scaled to [0, 1]."""
    least = values.min()
    width = (values.max() - least).clamp(min=1e-12)
    return (values - least) / width
