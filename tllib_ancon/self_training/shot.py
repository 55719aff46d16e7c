"""SHOT: information maximisation and pseudo-labels from class centroids."""

from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Number
from tllib_ancon.runtime import processes
from tllib_ancon.self_training.checks import check_integers, check_logits
from tllib_ancon.self_training.memory_bank import WholePass
from tllib_ancon.self_training.method import Method, Visit, option
from tllib_ancon.self_training.pseudo_label import cross_entropy
from tllib_ancon.self_training.registry import COMPOSITIONS, register

EPSILON = 1e-5
"""Inside each logarithm, as in the official code."""


def information_maximization(logits: Tensor) -> Tensor:
    r"""SHOT-IM: each prediction certain, all of them together diverse.

    .. math::
        L = E[H(f)] - H(E[f]),  H(p) = - Σ_k p_k log(p_k + ε),  ε = 0.00001

    Args:
        logits: (B, K) of any floating type

    Returns: float32 scalar in [-log K, 0] up to ε

    Source: Liang, Hu & Feng, "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for
    Unsupervised Domain Adaptation", ICML 2020, Eq. 3.
    """
    check_logits(logits)
    probabilities = logits.float().softmax(1)
    mean = processes.mean(probabilities.mean(0))
    return _entropy(probabilities).mean() - _entropy(mean)


def _entropy(probabilities: Tensor) -> Tensor:
    return -(probabilities * (probabilities + EPSILON).log()).sum(-1)


class CentroidPseudoLabels(WholePass):
    r"""SHOT's pseudo-labels: the class whose centroid is nearest, over the whole target set.

    With x the feature, a 1 appended, scaled to length 1, and a the softmax in the first round and the
    one-hot labels of the first round in the second:

    .. math::
        c_k = Σ_x a_k(x) x / Σ_x a_k(x),   ŷ(x) = argmax_k cos(x, c_k)

    Only classes that have a sample compete: one that the classifier predicts in the first round, one of the
    first round's labels in the second (the official code with threshold 0).

    Args:
        num_samples, num_classes (int): N images of the whole target set, K classes
        feature_dim (int): D, width of the features before the head

    Inputs: indices (B,) int64 or int32 in [0, N), best left on the CPU

    Outputs: (B,) int64 labels as of the last :meth:`initialize`

    Raises:
        UserError: also for a pass that misses samples, and a use before the first pass

    Source: Liang, Hu & Feng, ICML 2020, Eq. 4–6.
    """

    refresh = "epoch"
    labels: Tensor

    @validated
    def __init__(self, num_samples: Number, num_classes: Number, feature_dim: Number):
        super().__init__((num_samples, num_classes, feature_dim))
        self.register_buffer("labels", torch.zeros(num_samples, dtype=torch.int64))

    @torch.no_grad()
    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Label every sample from one pass, (M,), (M, D), (M, K), that holds each sample at least once."""
        self.accept_pass(indices, features, logits)
        with torch.autocast(features.device.type, enabled=False):
            labels = _two_rounds(features.float(), logits.float())
        self.labels[indices.to(self.labels.device)] = labels.to(self.labels.device)

    def forward(self, indices: Tensor) -> Tensor:
        self.require_pass()
        check_integers("indices", indices, "B", len(self.labels))
        return self.labels[indices.to(self.labels.device, non_blocking=True)]


def _two_rounds(features: Tensor, logits: Tensor) -> Tensor:
    """The label of each sample by the centroids of the second round."""
    directions = nn.functional.normalize(nn.functional.pad(features, (0, 1), value=1.0))
    probabilities = logits.softmax(1)
    labels = probabilities.argmax(1)
    centroids = probabilities.T @ directions
    for _ in range(2):
        absent = torch.bincount(labels, minlength=len(centroids)) == 0
        similarities = directions @ nn.functional.normalize(centroids).T  # centroids are known up to their lengths
        labels = similarities.masked_fill_(absent, -torch.inf).argmax(1)
        centroids = torch.zeros_like(centroids).index_add_(0, labels, directions)
    return labels


@register("shot", composes=COMPOSITIONS)
class SHOT(Method):
    """Information maximisation and pseudo-labels from class centroids (Liang, Hu & Feng, 2020)."""

    shot_coefficient: float = option(0.3, ge=0, help="SHOT: weight of the pseudo-label loss")

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.centroids = CentroidPseudoLabels(*self.feature_sizes)

    def pseudo_labels(self, indices: Tensor, predictions: Tensor) -> Tensor:
        labels: Tensor = self.centroids(indices)
        return labels

    def objective(self, visit: Visit, targets: Tensor) -> Tensor:
        loss = information_maximization(visit.logits)
        return loss + self.shot_coefficient * cross_entropy(visit.logits, targets)


@register("shot-im", composes=("elr",))
class _SHOTIM(Method):
    """Information maximisation alone."""

    makes_labels = False

    def objective(self, visit: Visit, targets: Tensor) -> Tensor:
        return information_maximization(visit.logits)
