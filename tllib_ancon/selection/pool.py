"""Criteria that need the predictions of several models, or of one model more than once, without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.selection.criteria import checked_logits, checked_probabilities


def ensv(pool: Sequence[Tensor]) -> list[float]:
    r"""EnsV: how often each model agrees with the mean prediction of all; higher is better.

    .. math:: \bar f(x) = \frac{1}{M} \sum_m f_m(x), \qquad
        s_m = \frac{1}{N} \sum_i [\arg\max_k f_m(x_i)_k = \arg\max_k \bar f(x_i)_k].

    Inputs:
        - pool: the probabilities of M models on the same samples.

    Outputs: a float in [0, 1] for each model.

    Shape: M tensors (N, K), any float dtype; computed in float64.

    Raises:
        UserError: an empty pool, models with other samples or classes, or what is no probability vector.

    Source: Hu, Luo, Liang and Foo, "Towards Reliable Model Selection for Unsupervised Domain Adaptation: An Empirical
    Study and A Certified Baseline", NeurIPS 2024, Datasets and Benchmarks.
    """
    _require_one_shape(pool)
    predictions = []
    total: Tensor | None = None
    for probabilities in map(checked_probabilities, pool):
        total = probabilities.clone() if total is None else total.add_(probabilities)
        predictions.append(probabilities.argmax(dim=1))
    assert total is not None
    ensemble = total.argmax(dim=1)
    return [float(own.eq(ensemble).double().mean()) for own in predictions]


def asr_resets(pool: Sequence[Tensor], momentum: float = 0.15, initial: float = 0.5) -> list[bool]:
    r"""ASR's trigger: where a sequence of models would be reset, because predictions concentrate on few classes.

    .. math:: c_t = H(\mathrm{softmax}(\tfrac{1}{N} \sum_i q_i)), \qquad
        c_t < \bar c_{t-1} \Rightarrow \text{reset}, \qquad
        \bar c_t = m_t \bar c_{t-1} + (1 - m_t) c_t, \; m_t = 1 - m_0 (1 - r_t),

    from :math:`\log(a_0 K)`, to which a reset returns :math:`\bar c`, with the share :math:`r_t` of samples whose class
    differs from the start model's. ASR looks at each batch of a stream; here an epoch is a step, the start the first.

    Args:
        momentum (float): :math:`m_0` in [0, 1].
        initial (float): :math:`a_0`, with :math:`a_0 K` at least 1.

    Inputs:
        - pool: logits of the start model and of each epoch's, in the order of training.

    Outputs: for each model whether it triggers a reset.

    Shape: each (N, K), any float dtype; computed in float64.

    Raises:
        UserError: an empty pool, models with other samples or classes, logits that are not finite, or arguments out of
            range.

    Source: Lim, Hwang and Lee, "When and Where to Reset Matters for Long-Term Test-Time Adaptation", ICLR 2026; the
    numbers are those of its code, which takes the entropy of the softmax of the mean logits.
    """
    _require_one_shape(pool)
    num_classes = pool[0].shape[1]
    if not 0 <= momentum <= 1:
        raise UserError(f"asr_resets: momentum {momentum} lies outside 0 to 1 (Lim et al. use 0.15)")
    if not initial * num_classes >= 1:
        raise UserError(f"asr_resets: initial {initial} times {num_classes} classes must be at least 1")
    before = checked_logits(pool[0]).argmax(dim=1)
    average = math.log(initial * num_classes)
    resets = []
    for logits in map(checked_logits, pool):
        mean = logits.mean(dim=0).softmax(dim=0)
        concentration = float(torch.special.entr(mean).sum())
        resets.append(concentration < average)
        changed = float(logits.argmax(dim=1).ne(before).double().mean())
        keep = 1 - momentum * (1 - changed)
        average = math.log(initial * num_classes) if resets[-1] else keep * average + (1 - keep) * concentration
    return resets


def dropout_agreement(probabilities: Tensor, dropout: Tensor) -> float:
    r"""How often predictions under dropout agree with the prediction without it; higher is better.

    .. math:: \frac{1}{NT} \sum_{it} [\arg\max_k f(x_i)_k = \arg\max_k f^{(t)}(x_i)_k],

    one minus AETTA's prediction disagreement.

    Inputs:
        - probabilities: without dropout.
        - dropout: of T passes with dropout.

    Outputs: a float in [0, 1].

    Shape: probabilities (N, K); dropout (T, N, K); any float dtype.

    Raises:
        UserError: other shapes, or what is no probability vector.

    Source: Lee, Chottananurak, Gong and Lee, "AETTA: Label-Free Accuracy Estimation for Test-Time Adaptation", CVPR
    2024, Equation 3.
    """
    probabilities, dropout = _checked_passes(probabilities, dropout)
    return float(dropout.argmax(dim=2).eq(probabilities.argmax(dim=1)).double().mean())


def aetta(probabilities: Tensor, dropout: Tensor, alpha: float = 3.0) -> float:
    r"""AETTA's estimate of the accuracy; higher is better.

    .. math:: 1 - \min\Bigl(1 - \tfrac{1}{K}, \; d \Bigl(\frac{H(\bar f)}{\log K}\Bigr)^{-\alpha}\Bigr), \qquad
        \bar f = \frac{1}{NT} \sum_{it} f^{(t)}(x_i),

    where :math:`d` is one minus :func:`dropout_agreement`: the disagreement counts more if few classes are predicted.
    AETTA also averages over the batches of a stream (0.6 of the last estimate); here all samples are one batch.

    Args:
        alpha (float): :math:`\alpha`, at least 0.

    Inputs:
        - probabilities: without dropout.
        - dropout: of T passes with dropout.

    Outputs: a float in :math:`[1/K, 1]`.

    Shape: probabilities (N, K); dropout (T, N, K); any float dtype; computed in float64.

    Raises:
        UserError: other shapes, what is no probability vector, or a negative ``alpha``.

    Source: Lee, Chottananurak, Gong and Lee, CVPR 2024, Equation 10; as in its code, 1e-6 is added inside the entropy's
    logarithm.
    """
    if not alpha >= 0:
        raise UserError(f"aetta: alpha is {alpha}; give at least 0 (Lee et al. use 3)")
    disagreement = 1 - dropout_agreement(probabilities, dropout)
    _, dropout = _checked_passes(probabilities, dropout)
    num_classes = dropout.shape[2]
    mean = dropout.mean(dim=(0, 1))
    spread = max(-float((mean * (mean + 1e-6).log()).sum()) / math.log(num_classes), 0.0)
    if disagreement == 0:
        return 1.0
    weight = spread**alpha
    return 1 - min(1 - 1 / num_classes, disagreement / weight if weight else math.inf)


def mixing_pairs(predictions: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Pairs of samples that :func:`mixval` mixes: neighbours in a random order that differ in class, and neighbours of
    one class in that order.

    Args:
        generator (torch.Generator, optional): of the host, for the random order.

    Inputs:
        - predictions: predicted classes.

    Outputs: positions of the first and of the second sample of each pair.

    Shape: predictions (N,) integer; outputs (M,) int64 on the host, M < 2N; no pair where N is 1.

    Raises:
        UserError: for another shape or dtype.
    """
    if predictions.ndim != 1 or predictions.is_floating_point() or not len(predictions):
        raise UserError(
            f"predictions have shape {tuple(predictions.shape)} and dtype {predictions.dtype}; give classes"
        )
    classes = predictions.cpu()
    order = torch.randperm(len(classes), generator=generator)
    by_class = order[classes[order].argsort(stable=True)]
    within = classes[by_class[1:]] == classes[by_class[:-1]]
    across = classes[order[1:]] != classes[order[:-1]]
    first = torch.cat([by_class[1:][within], order[1:][across]])
    return first, torch.cat([by_class[:-1][within], order[:-1][across]])


def mixval(mixed: Tensor, predictions: Tensor, first: Tensor, second: Tensor) -> float:
    r"""MixVal: how often the prediction on a mixture of two images is the class of the one that weighs more; higher is
    better.

    The model sees :math:`\lambda x_i + (1 - \lambda) x_j` with :math:`\lambda = 0.55`, and is consistent if it says
    :math:`\hat y_i`, its prediction on :math:`x_i` alone. The two shares of consistent mixtures, where
    :math:`\hat y_i = \hat y_j` (within a cluster) and where they differ (across), are averaged, as in
    scikit-adaptation; the authors' code reports them apart. A share without a mixture counts 0: a model that says one
    class for all has no boundary to probe.

    Inputs:
        - mixed: logits or probabilities of the mixtures; only their order within a row matters.
        - predictions: the model's predicted classes of the N images.
        - first, second: the images of each mixture, of which the first weighs more; see :func:`mixing_pairs`.

    Outputs: a float in [0, 1].

    Shape: mixed (M, K); predictions (N,); first, second (M,) integer in [0, N).

    Raises:
        UserError: other shapes, no mixture, positions out of range, or values that are not finite.

    Source: Hu, Liang, Liew, Xue, Bai and Wang, "Mixed Samples as Probes for Unsupervised Model Selection in Domain
    Adaptation", NeurIPS 2023.
    """
    answers = checked_logits(mixed).argmax(dim=1).cpu()
    predictions, first, second = (indices.cpu() for indices in (predictions, first, second))
    for name, positions in (("first", first), ("second", second)):
        if positions.shape != answers.shape or positions.is_floating_point():
            raise UserError(
                f"{name} has shape {tuple(positions.shape)}; give a position for each of {len(answers)} rows"
            )
        if int(positions.min()) < 0 or int(positions.max()) >= len(predictions):
            raise UserError(f"{name} has positions outside 0 to {len(predictions) - 1}")
    consistent = (answers == predictions[first]).double()
    within = predictions[first] == predictions[second]
    shares = [float(consistent[part].mean()) if part.any() else 0.0 for part in (within, ~within)]
    return sum(shares) / 2


def _require_one_shape(pool: Sequence[Tensor]) -> None:
    shapes = {tuple(outputs.shape) for outputs in pool}
    if len(shapes) != 1:
        raise UserError(f"the models of a pool must have the same samples and classes, got shapes {sorted(shapes)}")


def _checked_passes(probabilities: Tensor, dropout: Tensor) -> tuple[Tensor, Tensor]:
    probabilities = checked_probabilities(probabilities)
    if dropout.ndim != 3 or not len(dropout) or dropout.shape[1:] != probabilities.shape:
        raise UserError(
            f"dropout has shape {tuple(dropout.shape)}; give (T, N, K) for probabilities {tuple(probabilities.shape)}"
        )
    return probabilities, checked_probabilities(dropout.flatten(0, 1)).view(dropout.shape)
