"""Criteria that score one model from its predictions on N images, (N, K), without labels (Section 4.3.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tllib_ancon.errors import UserError

ROW_SUM_TOLERANCE = 1e-3
MOST_COMPARED = 4096
"""Samples that :func:`snd` compares with each other."""
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

    Of more than 4,096 samples, so many are drawn without replacement, by a seed that is the same in every call, and
    stand for all; else time would grow with N²K. (Memory does not: rows are compared in chunks.)

    Args:
        temperature (float): :math:`\tau`, positive.

    Inputs:
        - probabilities: one probability vector per sample, at least two samples.

    Outputs: a float in :math:`[0, \log(N-1)]`, N at most 4,096.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`; also for one sample alone and for a temperature that is not positive.

    Source: Saito et al., "Tune it the Right Way: Unsupervised Validation of Domain Adaptation via Soft
    Neighborhood Density", ICCV 2021.
    """
    if not temperature > 0:
        raise UserError(f"snd: the temperature is {temperature}; give a positive one (Saito et al. use 0.05)")
    directions = torch.nn.functional.normalize(_sample(checked_probabilities(probabilities)), dim=1)
    num_samples = len(directions)
    if num_samples < 2:
        raise UserError("snd: one sample has no neighbors; give the probabilities of at least two")
    rows = max(1, SIMILARITIES_AT_ONCE // num_samples)
    buffer = directions.new_empty(min(rows, num_samples), num_samples)
    total = directions.new_zeros(())
    for start in range(0, num_samples, rows):
        total += _neighbor_entropies(directions, start, buffer[: num_samples - start], temperature).sum()
    return float(total / num_samples)


def nuclear_norm(probabilities: Tensor) -> float:
    r"""Nuclear norm :math:`\lVert P \rVert_* / \sqrt{\min(N, K)\, N}` of the prediction matrix; higher is better.

    The sum of the singular values of P, in units of its largest value. It is large for predictions that are confident
    and spread over the classes.

    Inputs:
        - probabilities: one probability vector per sample.

    Outputs: a float in :math:`(0, 1]`; 1 for one-hot predictions spread evenly over classes.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: see :func:`infomax`.

    Source: Deng, Suh, Gould and Zheng, "Confidence and Dispersity Speak: Characterizing Prediction Matrix for
    Unsupervised Accuracy Estimation", ICML 2023.
    """
    probabilities = checked_probabilities(probabilities)
    singular_values = torch.linalg.svdvals(probabilities)
    return float(singular_values.sum()) / math.sqrt(min(probabilities.shape) * len(probabilities))


def mano(logits: Tensor, norm_order: float = 4.0, threshold: float = 5.0) -> float:
    r"""MaNo, the entry-wise norm :math:`(\frac{1}{NK} \sum_{ik} |\sigma(q_i)_k|^p)^{1/p}` of normalised logits; higher
    is better.

    .. math:: \Phi = -\frac{1}{NK} \sum_{ik} \log \mathrm{softmax}(q_i)_k, \qquad
        \sigma(q) = \begin{cases} \mathrm{softmax}(q) & \Phi > \eta \\
        v / \lVert v \rVert_1, \; v = t - \min_k t_k, \; t = 1 + q + q^2/2 & \text{otherwise.} \end{cases}

    Logits far from uniform (a large :math:`\Phi`) get the softmax, others its Taylor expansion of second order; as the
    authors' code does, its smallest entry is taken off each row, and a row of equal logits counts 0. The second case is
    not the same for logits that are shifted by a constant.

    Args:
        norm_order (float): p, at least 1.
        threshold (float): :math:`\eta`.

    Inputs:
        - logits: the model's outputs before softmax.

    Outputs: a float in :math:`[0, K^{-1/p}]`.

    Shape: (N, K), any float dtype; computed in float64.

    Raises:
        UserError: for another shape, logits that are not finite, or a norm order below 1.

    Source: Xie, Odonnat, Feofanov et al., "MANO: Exploiting Matrix Norm for Unsupervised Accuracy Estimation Under
    Distribution Shifts", NeurIPS 2024.
    """
    if not norm_order >= 1:
        raise UserError(f"mano: the norm order is {norm_order}; give one of at least 1 (Xie et al. use 4)")
    logits = checked_logits(logits)
    if -float(logits.log_softmax(dim=1).mean()) > threshold:
        normalised = logits.softmax(dim=1)
    else:
        expanded = 1 + logits + logits.square() / 2
        normalised = torch.nn.functional.normalize(expanded - expanded.amin(dim=1, keepdim=True), p=1, dim=1)
    return float(normalised.pow(norm_order).mean() ** (1 / norm_order))


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


def checked_logits(logits: Tensor) -> Tensor:
    """The same logits in float64, checked: (N, K), N ≥ 1, K ≥ 2, finite.

    Raises:
        UserError: naming what is wrong and the first row where it is.
    """
    if logits.ndim != 2 or logits.shape[0] == 0 or logits.shape[1] < 2:
        raise UserError(f"logits have shape {tuple(logits.shape)}; give (N, K): a row per sample, two or more classes")
    if not logits.is_floating_point():
        raise UserError(f"logits have dtype {logits.dtype}; give a floating-point tensor")
    if logits.device.type == "mps":  # which has no float64
        logits = logits.cpu()
    logits = logits.detach().double()
    _refuse_rows(~logits.isfinite().all(dim=1), "is not finite; the model has probably diverged", "logits")
    return logits


def _refuse_rows(bad: Tensor, problem: str, what: str = "probabilities") -> None:
    if bad.any():
        first = int(bad.nonzero()[0])
        raise UserError(f"row {first} of the {what} ({int(bad.sum())} of {len(bad)} rows) {problem}")


def _entropy(probabilities: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy


def _sample(rows: Tensor) -> Tensor:
    """The same rows, or :data:`MOST_COMPARED` of them."""
    if len(rows) <= MOST_COMPARED:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    return rows[order[:MOST_COMPARED].to(rows.device)]


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
