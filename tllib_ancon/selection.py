"""Label-free selection: criteria that rank saved epochs from predictions alone (Section 4.3.1).

A criterion maps the probabilities of one evaluation pass, (N, K), to one number. No label is ever needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tllib_ancon.errors import UserError, unknown_name

ROW_SUM_TOLERANCE = 1e-3
SIMILARITIES_AT_ONCE = 2**22
"""Entries of the similarity matrix that :func:`snd` holds at a time: 32 MiB in float64."""


def infomax(probabilities: Tensor) -> float:
    r"""InfoMax :math:`H(\mathbb{E}_X f(X)) - \mathbb{E}_X H(f(X))` in nats; higher is better.

    Inputs:
        - probabilities: one probability vector per sample.

    Outputs: a float in :math:`[0, \log K]`; the upper end for one-hot predictions spread evenly over classes.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: if the input is not a non-empty matrix of probability vectors (so do all criteria).

    Source: the paper, appendix "Definitions of model selection criteria"; Shi and Sha, ICML 2012.
    """
    probabilities = checked_probabilities(probabilities)
    return float(_entropy(probabilities.mean(dim=0)) - _entropy(probabilities).mean())


def corr_c(probabilities: Tensor) -> float:
    r"""Corr-C :math:`\lVert C/\lVert C \rVert_F - I/\sqrt{K} \rVert_F`, :math:`C=f^\top f`; lower is better.

    The paper prints :math:`C / (\lVert C \rVert_F / \sqrt{K})`, which is a matrix and ranks nothing. This is
    the distance to the normalised identity that was meant; it equals :math:`\sqrt{2 - 2 \cos(C, I)}` with the
    correlation :math:`\cos(C, I) = \mathrm{tr}(C) / (\lVert C \rVert_F \sqrt{K})` of Tu et al., so both rank
    alike.

    Inputs:
        - probabilities: one probability vector per sample.

    Outputs: a float in :math:`[0, \sqrt{2 - 2/\sqrt{K}}]`; 0 for one-hot predictions spread evenly over
    classes, the upper end for predictions that are all the same.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`.

    Source: Tu, Deng, Gedeon and Zheng, "Assessing Model Out-of-distribution Generalization with Softmax
    Prediction Probability Baselines and A Correlation Method", 2022.
    """
    probabilities = checked_probabilities(probabilities)
    num_classes = probabilities.shape[1]
    correlation = probabilities.T @ probabilities
    identity = torch.eye(num_classes, dtype=correlation.dtype, device=correlation.device)
    return float((correlation / correlation.norm() - identity / identity.norm()).norm())


def mean_entropy(probabilities: Tensor) -> float:
    r"""Mean entropy of the predictions :math:`\mathbb{E}_X H(f(X))` in nats; lower is better.

    Inputs:
        - probabilities: one probability vector per sample.

    Outputs: a float in :math:`[0, \log K]`.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`.

    Source: Morerio, Cavazza and Murino, "Minimal-Entropy Correlation Alignment", ICLR 2018 (arXiv 2017).
    """
    return float(_entropy(checked_probabilities(probabilities)).mean())


def marginal_entropy(probabilities: Tensor) -> float:
    r"""Entropy of the mean prediction :math:`H(\mathbb{E}_X f(X))` in nats; lower is better, the printed Ent.

    Read so, it prefers a model that says one class for every sample. The criterion the paper cites for Ent is
    :func:`mean_entropy`.

    Inputs:
        - probabilities: one probability vector per sample.

    Outputs: a float in :math:`[0, \log K]`.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`.

    Source: the paper, appendix "Definitions of model selection criteria", Ent.
    """
    return float(_entropy(checked_probabilities(probabilities).mean(dim=0)))


def snd(probabilities: Tensor, temperature: float = 0.05) -> float:
    r"""Soft neighborhood density in nats; higher is better.

    .. math:: \frac{1}{N} \sum_i H(P_i), \qquad
        P_{ij} = \frac{\exp(\cos(f_i, f_j) / \tau)}{\sum_{k \ne i} \exp(\cos(f_i, f_k) / \tau)}, \; j \ne i.

    Time grows with N²K; memory does not (rows are compared in chunks).

    Args:
        temperature (float): :math:`\tau`, positive.

    Inputs:
        - probabilities: one probability vector per sample, at least two samples.

    Outputs: a float in :math:`[0, \log(N-1)]`.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`; also for one sample alone and for a temperature that is not positive.

    Source: Saito et al., "Tune it the Right Way: Unsupervised Validation of Domain Adaptation via Soft
    Neighborhood Density", ICCV 2021.
    """
    if not temperature > 0:
        raise UserError(f"snd: the temperature is {temperature}; give a positive one (Saito et al. use 0.05)")
    directions = torch.nn.functional.normalize(checked_probabilities(probabilities), dim=1)
    num_samples = len(directions)
    if num_samples < 2:
        raise UserError("snd: one sample has no neighbors; give the probabilities of at least two")
    rows = max(1, SIMILARITIES_AT_ONCE // num_samples)
    buffer = directions.new_empty(min(rows, num_samples), num_samples)
    total = directions.new_zeros(())
    for start in range(0, num_samples, rows):
        total += _neighbor_entropies(directions, start, buffer[: num_samples - start], temperature).sum()
    return float(total / num_samples)


PAPER_CRITERIA = ("infomax", "corr_c", "mean_entropy")
"""InfoMax, Corr-C and Ent, the last as its source defines it."""


@dataclass(frozen=True)
class Criterion:
    """A label-free criterion: its name, its function, which end is better, where it comes from, and how many samples it
    needs."""

    name: str
    function: Callable[[Tensor], float]
    higher_is_better: bool
    source: str
    fewest_samples: int = 1


CRITERIA: dict[str, Criterion] = {
    criterion.name: criterion
    for criterion in (
        Criterion("infomax", infomax, True, "Shi and Sha, 2012"),
        Criterion("corr_c", corr_c, False, "Tu et al., 2022"),
        Criterion("mean_entropy", mean_entropy, False, "Morerio et al., 2017"),
        Criterion("marginal_entropy", marginal_entropy, False, "Ent as the paper prints it"),
        Criterion("snd", snd, True, "Saito et al., 2021", fewest_samples=2),
    )
}


def score_all(probabilities: Tensor, criteria: Iterable[str] | None = None) -> dict[str, float]:
    """Scores one evaluation pass by every criterion.

    Args:
        criteria: names in :data:`CRITERIA`; by default all that N samples are enough for. ``snd`` alone needs time
            quadratic in N.

    Inputs:
        - probabilities: one probability vector per sample.

    Outputs: the score by name, in the order of ``criteria``.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`; also for an unknown name.
    """
    probabilities = checked_probabilities(probabilities)
    if criteria is None:
        criteria = [name for name, known in CRITERIA.items() if len(probabilities) >= known.fewest_samples]
    return {name: find_criterion(name).function(probabilities) for name in criteria}


def best_epoch(scores: Sequence[float], criterion: str) -> int:
    """The first index at which ``criterion`` is best. NaN never wins.

    Args:
        scores: one score per epoch; index 0 is the start model where epoch 0 was scored.
        criterion (str): a name in :data:`CRITERIA`; it says which end is better.

    Outputs: an index into ``scores``.

    Raises:
        UserError: for an unknown name, and if no score is a number.
    """
    sign = 1 if find_criterion(criterion).higher_is_better else -1
    candidates = [epoch for epoch, score in enumerate(scores) if not math.isnan(score)]
    if not candidates:
        raise UserError(f"none of the {len(scores)} epochs has a {criterion} score; evaluate at least one")
    return max(candidates, key=lambda epoch: sign * scores[epoch])


def selection_spread(accuracies_by_criterion: Mapping[str, float]) -> float:
    """The paper's "maximum performance change under different selection methods" (Section 4.3.1): max - min.

    Args:
        accuracies_by_criterion: the accuracy of the epoch that each criterion selected, all in one unit.

    Outputs: a non-negative float in that unit.

    Raises:
        UserError: if there is no accuracy, or one is NaN.
    """
    accuracies = list(accuracies_by_criterion.values())
    if not accuracies or any(math.isnan(accuracy) for accuracy in accuracies):
        raise UserError(f"the spread needs one accuracy per criterion, got {dict(accuracies_by_criterion)}")
    return max(accuracies) - min(accuracies)


def checked_probabilities(probabilities: Tensor) -> Tensor:
    """The same probabilities in float64, checked: (N, K), N ≥ 1, K ≥ 2, each row in [0, 1] and summing to 1.

    Raises:
        UserError: naming what is wrong and the first row where it is.
    """
    if probabilities.ndim != 2 or probabilities.shape[0] == 0 or probabilities.shape[1] < 2:
        shape = tuple(probabilities.shape)
        raise UserError(f"probabilities have shape {shape}; give (N, K): a row per sample, two or more classes")
    if not probabilities.is_floating_point():
        raise UserError(f"probabilities have dtype {probabilities.dtype}; give a floating-point tensor")
    if probabilities.device.type == "mps":  # which has no float64
        probabilities = probabilities.cpu()
    probabilities = probabilities.detach().double()
    _refuse_rows(~probabilities.isfinite().all(dim=1), "is not finite; the model has probably diverged")
    _refuse_rows((probabilities < 0).any(dim=1), "has a negative entry; apply softmax to logits first")
    off = (probabilities.sum(dim=1) - 1).abs() > ROW_SUM_TOLERANCE
    _refuse_rows(off, "does not sum to 1; apply softmax, in float32 or better, to logits first")
    return probabilities


def _refuse_rows(bad: Tensor, problem: str) -> None:
    if bad.any():
        first = int(bad.nonzero()[0])
        raise UserError(f"row {first} of the probabilities ({int(bad.sum())} of {len(bad)} rows) {problem}")


def _entropy(probabilities: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy


def _neighbor_entropies(directions: Tensor, start: int, buffer: Tensor, temperature: float) -> Tensor:
    """Entropies of the similarity distributions of the samples from ``start`` on, one per row of ``buffer``.

    All in the one buffer: with a large N, allocating every intermediate costs more than computing it.
    """
    weights = torch.mm(directions[start : start + len(buffer)], directions.T, out=buffer)
    weights.diagonal(offset=start).fill_(-math.inf)
    weights.sub_(weights.amax(dim=1, keepdim=True)).div_(temperature).exp_()
    weights.div_(weights.sum(dim=1, keepdim=True))
    entropy: Tensor = torch.special.entr(weights, out=weights).sum(dim=1)
    return entropy


def find_criterion(name: str) -> Criterion:
    """The criterion of that name, or :class:`UserError` with the valid names."""
    if name not in CRITERIA:
        raise unknown_name("criterion", name, CRITERIA)
    return CRITERIA[name]
