"""Label-free selection: criteria that rank models by their predictions alone (Section 4.3.1).

A criterion maps the predictions of one model on N images, (N, K) probabilities of any float dtype, to one number, which
it computes in float64. It needs no label. Anything but a non-empty matrix of probability vectors raises a
:class:`~tllib_ancon.runtime.errors.UserError`.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tllib_ancon.runtime.errors import NotFinite, UserError

ROW_SUM_TOLERANCE = 1e-3


def infomax(probabilities: ArrayLike | Tensor) -> float:
    r"""InfoMax :math:`H(\mathbb{E}_X f(X)) - \mathbb{E}_X H(f(X))` in nats; higher is better.

    Shape: probabilities (N, K) float; output in :math:`[0, \log K]`, the upper end for one-hot predictions spread
    evenly over the classes.

    Source: the paper, appendix "Definitions of model selection criteria"; Shi and Sha, ICML 2012.
    """
    checked = checked_probabilities(probabilities)
    entropy_of_mean = _entropy(checked.mean(dim=0))
    mean_of_entropies = _entropy(checked).mean()
    return float(entropy_of_mean - mean_of_entropies)


def corr_c(probabilities: ArrayLike | Tensor) -> float:
    r"""Corr-C :math:`\lVert C/\lVert C \rVert_F - I/\sqrt{K} \rVert_F`, :math:`C=f^\top f`; lower is better.

    The paper prints :math:`C / (\lVert C \rVert_F / \sqrt{K})`, which is a matrix and ranks nothing. This is
    the distance to the normalised identity that was meant; it equals :math:`\sqrt{2 - 2 \cos(C, I)}` with the
    correlation :math:`\cos(C, I) = \mathrm{tr}(C) / (\lVert C \rVert_F \sqrt{K})` of Tu et al., so both rank
    alike.

    Shape: probabilities (N, K) float; output in :math:`[0, \sqrt{2 - 2/\sqrt{K}}]`, 0 for one-hot predictions spread
    evenly over the classes, the upper end for predictions that are all the same. Memory grows with K².

    Source: Tu, Deng, Gedeon and Zheng, "Assessing Model Out-of-distribution Generalization with Softmax
    Prediction Probability Baselines and A Correlation Method", 2022.
    """
    checked = checked_probabilities(probabilities)
    correlation = checked.T @ checked
    identity = torch.eye(len(correlation), dtype=correlation.dtype, device=correlation.device)
    difference = correlation / correlation.norm() - identity / identity.norm()
    return float(difference.norm())


def mean_entropy(probabilities: ArrayLike | Tensor) -> float:
    r"""Mean entropy of the predictions :math:`\mathbb{E}_X H(f(X))` in nats; lower is better.

    Shape: probabilities (N, K) float; output in :math:`[0, \log K]`.

    Source: Morerio, Cavazza and Murino, "Minimal-Entropy Correlation Alignment", ICLR 2018 (arXiv 2017).
    """
    return float(_entropy(checked_probabilities(probabilities)).mean())


class _Criterion(NamedTuple):
    """A scorer with a sign: ``sign * function(...)`` is the higher the better the model."""

    function: Callable[[Tensor], float]
    sign: int


CRITERIA = {
    "infomax": _Criterion(infomax, 1),
    "corr_c": _Criterion(corr_c, -1),
    "mean_entropy": _Criterion(mean_entropy, -1),
}
"""Criteria that an adaptation computes after each epoch, by name: the paper's InfoMax, Corr-C and Ent."""


def score_all(probabilities: Tensor) -> dict[str, float]:
    """The scores of one model by every criterion.

    Shape: probabilities (N, K) float; output score by name, in the order of :data:`CRITERIA`.
    """
    checked = checked_probabilities(probabilities)
    return {name: criterion.function(checked) for name, criterion in CRITERIA.items()}


def best_epoch(scores: Sequence[float], criterion: str) -> int:
    """The first index at which ``criterion`` is best. NaN never wins.

    Args:
        scores: one score per epoch; index 0 is the source model where epoch 0 was scored.
        criterion (str): a name in :data:`CRITERIA`; it defines which end is better.

    Raises:
        UserError: no score is a number
    """
    candidates = [epoch for epoch, score in enumerate(scores) if not math.isnan(score)]
    if not candidates:
        raise UserError(f"none of the {len(scores)} epochs has a score of {criterion}", "evaluate at least one")
    return max(candidates, key=lambda epoch: CRITERIA[criterion].sign * scores[epoch])


def checked_probabilities(probabilities: ArrayLike | Tensor) -> Tensor:
    """The same probabilities in float64, checked: (N, K), N ≥ 1, K ≥ 2, each row in [0, 1] and summing to 1.

    Raises:
        UserError: naming what is wrong and the first row where it is
    """
    tensor = torch.as_tensor(probabilities)
    if tensor.ndim != 2 or tensor.shape[0] == 0 or tensor.shape[1] < 2 or not tensor.is_floating_point():
        raise UserError(
            f"probabilities have shape {tuple(tensor.shape)} and dtype {tensor.dtype}",
            "give (N, K) of a floating type: a row per sample, two or more classes",
        )
    rows = tensor.detach().cpu().double()  # not every device has float64
    diverged = "is not finite; the model has probably diverged; try a lower learning rate"
    _require(rows.isfinite().all(dim=1), diverged, NotFinite)
    _require((rows >= 0).all(dim=1), "has a negative entry; apply softmax to logits first")
    _require(
        (rows.sum(dim=1) - 1).abs() <= ROW_SUM_TOLERANCE,
        "does not sum to 1; apply softmax, in float32 or better, to logits first",
    )
    return rows


def _require(is_valid: Tensor, problem: str, error: type[UserError] = UserError) -> None:
    """Raise an error about the first row that is not valid, of (N,)."""
    invalid = (~is_valid).nonzero()
    if len(invalid):
        raise error(f"row {int(invalid[0])} of the probabilities ({len(invalid)} of {len(is_valid)} rows) {problem}")


def _entropy(probabilities: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy
