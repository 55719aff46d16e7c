"""Label-free criteria of the second round: those of :mod:`tllib_ancon.selection`, and those that need the logits of a
model, what it says of mixed images, or several models.

A candidate is what is stored of a model: ``logits`` (N, K), perhaps ``dropout`` (T, N, K), probabilities of passes with
dropout, and perhaps ``mixed`` (M, K), logits of mixtures of the images ``first`` and ``second`` (M,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tllib_ancon.selection import CRITERIA, aetta

Candidate = Mapping[str, Tensor]


def ensv(pool: Sequence[Tensor]) -> list[float]:
    r"""EnsV: how often each of M models, probabilities (N, K), says what their mean prediction says; in [0, 1], higher
    is better.

    .. math:: \bar f(x) = \frac{1}{M} \sum_m f_m(x), \qquad
        s_m = \frac{1}{N} \sum_i [\arg\max_k f_m(x_i)_k = \arg\max_k \bar f(x_i)_k].

    Source: Hu, Luo, Liang and Foo, "Towards Reliable Model Selection for Unsupervised Domain Adaptation: An Empirical
    Study and A Certified Baseline", NeurIPS 2024, Datasets and Benchmarks.
    """
    ensemble = torch.stack([one.double() for one in pool]).sum(0).argmax(1)
    return [float(one.argmax(1).eq(ensemble).double().mean()) for one in pool]


def asr_resets(pool: Sequence[Tensor], momentum: float = 0.15, initial: float = 0.5) -> list[bool]:
    r"""ASR's trigger: where a sequence of models, the start's logits (N, K) first, would be reset, because predictions
    concentrate on few classes.

    .. math:: c_t = H(\mathrm{softmax}(\tfrac{1}{N} \sum_i q_i)), \qquad
        c_t < \bar c_{t-1} \Rightarrow \text{reset}, \qquad
        \bar c_t = m_t \bar c_{t-1} + (1 - m_t) c_t, \; m_t = 1 - m_0 (1 - r_t),

    from :math:`\log(a_0 K)`, to which a reset returns :math:`\bar c`, with the share :math:`r_t` of samples whose class
    differs from the start model's. ASR looks at each batch of a stream; here an epoch is a step.

    Source: Lim, Hwang and Lee, "When and Where to Reset Matters for Long-Term Test-Time Adaptation", ICLR 2026; the
    numbers are those of its code, which takes the entropy of the softmax of the mean logits.
    """
    beginning = math.log(initial * pool[0].shape[1])
    before, average = pool[0].argmax(1), beginning
    resets = []
    for logits in pool:
        concentration = float(torch.special.entr(logits.double().mean(0).softmax(0)).sum())
        resets.append(concentration < average)
        keep = 1 - momentum * (1 - float(logits.argmax(1).ne(before).double().mean()))
        average = beginning if resets[-1] else keep * average + (1 - keep) * concentration
    return resets


def dropout_agreement(probabilities: Tensor, dropout: Tensor) -> float:
    """How often predictions under dropout (T, N, K) agree with the prediction without it (N, K); higher is better.

    Source: Lee et al., CVPR 2024, Equation 3: one minus AETTA's prediction disagreement.
    """
    return float(dropout.argmax(2).eq(probabilities.argmax(1)).double().mean())


def mixing_pairs(predictions: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Predicted classes (N,) -> positions (M,), M < 2N, of the first and of the second image of each pair that
    :func:`mixval` mixes: neighbours in a random order that differ in class, and neighbours of one class in it."""
    classes = predictions.cpu()
    order = torch.randperm(len(classes), generator=generator)
    by_class = order[classes[order].argsort(stable=True)]
    within = classes[by_class[1:]] == classes[by_class[:-1]]
    across = classes[order[1:]] != classes[order[:-1]]
    first = torch.cat([by_class[1:][within], order[1:][across]])
    return first, torch.cat([by_class[:-1][within], order[:-1][across]])


def mixval(mixed: Tensor, predictions: Tensor, first: Tensor, second: Tensor) -> float:
    r"""MixVal: how often the prediction on a mixture of two images is the class of the one that weighs more; in [0, 1],
    higher is better.

    The model sees :math:`\lambda x_i + (1 - \lambda) x_j` with :math:`\lambda = 0.55`, and is consistent if it says
    :math:`\hat y_i`, its prediction on :math:`x_i` alone. The two shares of consistent mixtures, where
    :math:`\hat y_i = \hat y_j` (within a cluster) and where they differ (across), are averaged, as in
    scikit-adaptation; the authors' code reports them apart. A share without a mixture counts 0: a model that says one
    class for all has no boundary to probe.

    Source: Hu, Liang, Liew, Xue, Bai and Wang, "Mixed Samples as Probes for Unsupervised Model Selection in Domain
    Adaptation", NeurIPS 2023.
    """
    consistent = (mixed.argmax(1) == predictions[first]).double()
    within = predictions[first] == predictions[second]
    return sum(float(consistent[part].mean()) if part.any() else 0.0 for part in (within, ~within)) / 2


def mano(logits: Tensor, norm_order: float = 4.0, threshold: float = 5.0) -> float:
    r"""MaNo, the entry-wise norm :math:`(\frac{1}{NK} \sum_{ik} |\sigma(q_i)_k|^p)^{1/p}` of normalised logits (N, K),
    in :math:`[0, K^{-1/p}]`; higher is better.

    .. math:: \Phi = -\frac{1}{NK} \sum_{ik} \log \mathrm{softmax}(q_i)_k, \qquad
        \sigma(q) = \begin{cases} \mathrm{softmax}(q) & \Phi > \eta \\
        v / \lVert v \rVert_1, \; v = t - \min_k t_k, \; t = 1 + q + q^2/2 & \text{otherwise.} \end{cases}

    Logits far from uniform (a large :math:`\Phi`) get the softmax, others its Taylor expansion of second order; as the
    authors' code does, its smallest entry is taken off each row, and a row of equal logits counts 0.

    Source: Xie, Odonnat, Feofanov et al., "MANO: Exploiting Matrix Norm for Unsupervised Accuracy Estimation Under
    Distribution Shifts", NeurIPS 2024.
    """
    logits = logits.double()
    if -float(logits.log_softmax(1).mean()) > threshold:
        normalised = logits.softmax(1)
    else:
        expanded = 1 + logits + logits.square() / 2
        normalised = torch.nn.functional.normalize(expanded - expanded.amin(1, keepdim=True), p=1, dim=1)
    return float(normalised.pow(norm_order).mean() ** (1 / norm_order))


class Criterion(NamedTuple):
    """A criterion of a pool of candidates, the start first.

    Attributes:
        needs: what it is computed from
        scores: the pool -> a score for each candidate, NaN where it lacks what is needed
        higher_is_better: which end is better
        of_epochs: it takes the epochs of one run in their order, and nothing else
    """

    needs: str
    scores: Callable[[Sequence[Candidate]], list[float]]
    higher_is_better: bool = True
    of_epochs: bool = False


def probabilities(candidate: Candidate) -> Tensor:
    return candidate["logits"].float().softmax(1)


def _each(score: Callable[[Candidate], float], needed: str = "logits") -> Callable[[Sequence[Candidate]], list[float]]:
    return lambda pool: [score(one) if needed in one else math.nan for one in pool]


def _of_probabilities(function: Callable[[Tensor], float]) -> Callable[[Sequence[Candidate]], list[float]]:
    return _each(lambda one: function(probabilities(one)))


def _until_reset(pool: Sequence[Candidate]) -> list[float]:
    """The later the better, up to the epoch before the first that ASR would reset."""
    resets = asr_resets([one["logits"] for one in pool])
    first = next((epoch for epoch in range(1, len(pool)) if resets[epoch]), len(pool))
    return [float(epoch) if epoch < first else -1.0 for epoch in range(len(pool))]


DROPOUT = "the probabilities of one epoch, and of passes with dropout"
ALL = {
    **{
        name: Criterion("the probabilities of one epoch", _of_probabilities(one.function), one.higher_is_better)
        for name, one in CRITERIA.items()
        if not one.needs_dropout
    },
    "aetta": Criterion(DROPOUT, _each(lambda one: aetta(probabilities(one), one["dropout"]), "dropout")),
    "mano": Criterion("the logits of one epoch", _each(lambda one: mano(one["logits"]))),
    "ensv": Criterion("the probabilities of all epochs", lambda pool: ensv(list(map(probabilities, pool)))),
    "asr": Criterion("the logits of all epochs in their order, the start first", _until_reset, of_epochs=True),
    "dropout_agreement": Criterion(
        DROPOUT, _each(lambda one: dropout_agreement(probabilities(one), one["dropout"]), "dropout")
    ),
    "mixval": Criterion(
        "the predictions of one epoch, and those on mixed images",
        _each(lambda one: mixval(one["mixed"], one["logits"].argmax(1), one["first"], one["second"]), "mixed"),
    ),
    "last": Criterion("the order of the epochs", lambda pool: [*map(float, range(len(pool)))], of_epochs=True),
}
"""Every criterion of the second round by its name."""
