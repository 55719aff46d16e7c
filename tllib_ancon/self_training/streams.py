"""Methods for a stream, whose batches come once: the loss of a batch, and its predictions."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tllib_ancon.runtime.errors import one_line, unknown_name
from tllib_ancon.self_training.eta import SampleEfficientEntropy
from tllib_ancon.self_training.tent import softmax_entropy

DECAY = 0.9
"""Of the moving average of predictions."""
LARGEST_WEIGHT = 3.0
"""Of a class in the loss of ``stream-auto``."""

FAR = 0.2
"""Relative squared distance of a batch's predicted classes from those of the stream, from which they are far."""
MEMORY = 0.02
"""Weight of a batch in the frequencies of the stream's classes."""


TEMPERATURE = 1 / 3
CLIP = 0.99
"""Probability from which on the loss does not reward confidence."""


SecondView = Callable[[], Tensor]
"""Returns the logits (B, K) of another view of the batch, with gradient."""
Step = tuple[Tensor, Tensor | None]
"""The loss of a batch, and the moving average (K,) of predictions after it."""


class _StreamMethod:
    """Base of the methods for a stream. A subclass defines :meth:`step`; :data:`STREAMS` has its name."""

    trains: ClassVar[bool] = True
    """False: a batch is predicted with its own batch-norm statistics, and nothing learns."""
    source_weight: ClassVar[float] = 0.0
    """Of the source model's parameters in the parameters after each step."""

    def step(self, logits: Tensor, average: Tensor | None, second_view: SecondView) -> Step:
        """Learn from logits (B, K), with gradient, and the moving average (K,) before this batch; None: it is the first
        one."""
        raise NotImplementedError

    def predictions(self, logits: Tensor) -> Tensor:
        """What is predicted for a batch, as logits, from the logits of the model."""
        return logits


@torch.no_grad()
def are_far(classes: Tensor, frequencies: Tensor) -> bool:
    r"""Whether the predicted classes (B,) of a batch are far from their frequencies (K,) in the stream so far.

    With the counts :math:`n_k` of the batch and the frequencies :math:`\rho` of the stream they are far if

    .. math::
        \frac{D}{\|\rho\|^2} > \max\Big(0.2, \; \frac{3 \sqrt{2}}{B \, \|\rho\|}\Big), \qquad
        D = \frac{\sum_k n_k (n_k - 1)}{B (B - 1)} - 2 \sum_k \frac{n_k}{B} \rho_k + \|\rho\|^2

    D is unbiased for the squared distance of the two distributions. The second bound is three times its standard
    deviation in a batch that is drawn from the stream. Not in a paper; see ``benchmarks/streams/README.md``.
    """
    size = len(classes)
    counts = classes.bincount(minlength=len(frequencies)).float()
    squared_norm = frequencies.square().sum()
    pairs = (counts * (counts - 1)).sum() / (size * (size - 1))
    distance = pairs - 2 * (counts / size * frequencies).sum() + squared_norm
    deviation = (2 * squared_norm).sqrt() / size
    return bool(distance > (3 * deviation).clamp(min=FAR * squared_norm))


@torch.no_grad()
def moved_frequencies(frequencies: Tensor, classes: Tensor) -> Tensor:
    """The slow moving average of the stream's class frequencies (K,), after a batch of predicted classes (B,)."""
    counts = classes.bincount(minlength=len(frequencies)).float()
    return frequencies.lerp(counts / len(classes), MEMORY)


class _TentStream(_StreamMethod):
    """Entropy minimisation (Wang et al., 2021): the mean of :func:`~tllib_ancon.self_training.tent.softmax_entropy`."""

    def step(self, logits: Tensor, average: Tensor | None, second_view: SecondView) -> Step:
        return softmax_entropy(logits).mean(), average


class _AdaBNStream(_StreamMethod):
    """The batch-norm statistics of the batch, and no training (Li et al., 2016)."""

    trains = False


class _ETAStream(_StreamMethod):
    """Entropy minimisation of certain and unusual predictions (Niu et al., 2022):
    :class:`~tllib_ancon.self_training.eta.SampleEfficientEntropy`."""

    def step(self, logits: Tensor, average: Tensor | None, second_view: SecondView) -> Step:
        entropy = SampleEfficientEntropy(logits.shape[1]).to(logits.device)
        if average is not None:
            entropy.average.copy_(average)
        return entropy(logits), entropy.average


class _ROIDStream(_StreamMethod):
    r"""The loss of ROID (Marsden et al., 2024), the mean over the batch of

    .. math:: w_i \, (L(f_i) + S(f_i, f'_i))

    with weights w by certainty and diversity, the soft likelihood ratio L and the symmetric cross-entropy S of two
    views. Its predictions are corrected by the class prior of a batch.
    """

    source_weight = 0.01

    def step(self, logits: Tensor, average: Tensor | None, second_view: SecondView) -> Step:
        frequencies = frequencies_before(average, logits)
        weights = _certainty_and_diversity(logits, frequencies)
        losses = _soft_likelihood_ratio(logits) + _symmetric_cross_entropy(logits, second_view())
        return (weights * losses).mean(), _moved_average(frequencies, logits)

    def predictions(self, logits: Tensor) -> Tensor:
        return _corrected(logits)


class _ClassWeightedStream(_StreamMethod):
    r"""Cross-entropy of two views with the pseudo-labels ŷ of their mean, weighted by class:

    .. math:: - \frac{1}{B} \sum_i w_{ŷ_i} \frac{\log f_{ŷ_i}(x_i) + \log f_{ŷ_i}(x'_i)}{2}, \qquad
        w_k = \min\Big(\frac{1}{K \bar f_k}, 3\Big)

    with the moving average :math:`\bar f` of predictions as the frequencies of the classes.
    """

    def step(self, logits: Tensor, average: Tensor | None, second_view: SecondView) -> Step:
        log_probabilities = logits.float().log_softmax(1)
        log_probabilities_of_second_view = second_view().float().log_softmax(1)
        frequencies = _moved_average(frequencies_before(average, logits), logits)
        with torch.no_grad():
            labels = torch.logaddexp(log_probabilities, log_probabilities_of_second_view).argmax(1)
            class_weights = (1 / (len(frequencies) * frequencies).clamp(min=1e-6)).clamp(max=LARGEST_WEIGHT)
        mean_log_probabilities = (log_probabilities + log_probabilities_of_second_view) / 2
        log_likelihoods = mean_log_probabilities.gather(1, labels[:, None]).squeeze(1)
        return -(class_weights[labels] * log_likelihoods).mean(), frequencies


STREAMS: dict[str, type[_StreamMethod]] = {
    "tent": _TentStream,
    "adabn": _AdaBNStream,
    "eta": _ETAStream,
    "roid": _ROIDStream,
    "stream-auto": _ClassWeightedStream,
}


def stream_method(name: object) -> _StreamMethod:
    """The method for a stream of this name."""
    if not isinstance(name, str) or name not in STREAMS:
        raise unknown_name("method", one_line(name), STREAMS)
    return STREAMS[name]()


def frequencies_before(average: Tensor | None, logits: Tensor) -> Tensor:
    """The moving average as frequencies (K,) of the classes of logits (B, K): equal ones before the first batch."""
    if average is not None:
        return average.to(logits.device)
    num_classes = logits.shape[1]
    return torch.full((num_classes,), 1 / num_classes, dtype=torch.float32, device=logits.device)


def _moved_average(average: Tensor, logits: Tensor) -> Tensor:
    mean = logits.detach().float().softmax(1).mean(0)
    return mean.lerp(average, DECAY)


def _soft_likelihood_ratio(logits: Tensor) -> Tensor:
    r"""Negative soft likelihood ratio of each prediction.

    .. math::
        L(f) = - \sum_k f_k \log \frac{f_k}{\sum_{j \ne k} f_j}

    Probabilities are clipped to at most 0.99, because the ratio has no upper bound.

    Shape: logits (B, K); output (B,) float32.

    Source: Marsden et al., "Universal Test-time Adaptation through Weight Ensembling, Diversity Weighting, and Prior
    Correction" (ROID), WACV 2024, Section 4.1.
    """
    probabilities = logits.float().softmax(1).clamp(1e-6, CLIP)
    return -(probabilities * (probabilities.log() - (1 - probabilities).log())).sum(1)


def _symmetric_cross_entropy(logits: Tensor, second_logits: Tensor) -> Tensor:
    """Mean of both cross-entropies between two predictions of the same samples, (B, K) each: (B,) float32."""
    log_first = logits.float().log_softmax(1)
    log_second = second_logits.float().log_softmax(1)
    return -(log_second.exp() * log_first + log_first.exp() * log_second).sum(1) / 2


@torch.no_grad()
def _certainty_and_diversity(logits: Tensor, mean: Tensor) -> Tensor:
    r"""Weight each sample of a batch: large for certain predictions that differ from the mean prediction.

    .. math::
        w_i = \exp\Big(\frac{d_i c_i}{\tau}\Big), \qquad d_i = 1 - \cos(f_i, \bar f), \qquad c_i = - H(f_i)

    with d and c scaled to [0, 1] within the batch and τ = 1/3. A sample with a d below the batch's mean gets weight 0.

    Shape: logits (B, K), mean prediction (K,); output (B,) float32 without gradient.
    """
    diversity = _scaled(1 - cosine_similarity(logits.float().softmax(1), mean[None]))
    weights = (diversity * _scaled(-softmax_entropy(logits)) / TEMPERATURE).exp()
    return weights.masked_fill(diversity < diversity.mean(), 0)


def _corrected(logits: Tensor) -> Tensor:
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
