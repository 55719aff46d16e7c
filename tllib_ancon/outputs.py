"""Helpers for the argument ``output``: what a model returns -> logits (B, K).

A model returns logits (B, K) as a tensor, or as ``logits`` of an object or a dict. For every other model ``output``
gives them: a key or the name of an attribute, a position in a tuple, one of these helpers, or a function of your own.

Example::

    >>> tllib_ancon.adapt(model, "photos/", output=1)  # of a model that returns (features, logits)
    >>> tllib_ancon.adapt(model, "photos/", output=from_probabilities)
    >>> tllib_ancon.adapt(model, "photos/", output=lambda output: from_one_logit(output["score"]))
"""

import torch
from torch import Tensor


def from_one_logit(logit: Tensor) -> Tensor:
    """Convert the logit of class 1 of a binary classifier to two logits.

    .. math::
        z \\mapsto (0, z)

    Args:
        logit: z, (B,) or (B, 1)

    Returns: logits (B, 2)

    Raises:
        ValueError: a tensor of another shape
    """
    if logit[:1].numel() != len(logit[:1]):
        raise ValueError(f"one logit for each image is expected, (B,) or (B, 1), not {tuple(logit.shape)}")
    column = logit.reshape(-1, 1)
    return torch.cat([torch.zeros_like(column), column], 1)


def from_probabilities(probabilities: Tensor) -> Tensor:
    """Convert probabilities to logits: their logarithms, or of one probability its log-odds.

    .. math::
        p \\mapsto \\log p \\quad\\text{or}\\quad p_1 \\mapsto \\left(0, \\log\\frac{p_1}{1 - p_1}\\right)

    Args:
        probabilities: (B, K), of a softmax or in percent; or of class 1 of two, (B,) or (B, 1)

    Returns: logits (B, K), of class 1 alone (B, 2)
    """
    wide = probabilities
    if probabilities.dtype != torch.float64:
        wide = probabilities.float()
    precision = torch.finfo(wide.dtype)
    if wide.ndim == 1 or wide.shape[1] == 1:
        return from_one_logit(wide.logit(eps=precision.eps))
    return wide.clamp(min=precision.tiny).log()


HELPERS = {"from_one_logit": from_one_logit, "from_probabilities": from_probabilities}
"""The helpers by the names that settings and records have for them."""
