"""SHOT: information maximisation and pseudo-labels from class centroids."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.self_training import processes
from tllib_ancon.self_training.checks import check_indices, check_logits, size
from tllib_ancon.self_training.memory_bank import FullPass

SAMPLES_AT_A_TIME = 8192


def information_maximization(logits: Tensor, epsilon: float = 1e-5) -> Tensor:
    r"""SHOT-IM: each prediction certain, all of them together diverse.

    .. math::
        L = E[H(f)] - H(E[f]),  H(p) = - Σ_k p_k log(p_k + ε)

    Args:
        logits: (B, K) of any floating type
        epsilon (float): ε, as in the official code. Default: 1e-5

    Returns: float32 scalar in [-log K, 0] up to ε

    Raises:
        UserError: logits that are not (B, K)

    Source: Liang, Hu & Feng, "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for
    Unsupervised Domain Adaptation", ICML 2020, Eq. 3.
    """
    check_logits(logits)
    probabilities = logits.float().softmax(1)
    return _entropy(probabilities, epsilon).mean() - _entropy(processes.mean(probabilities.mean(0)), epsilon)


def _entropy(probabilities: Tensor, epsilon: float) -> Tensor:
    return -(probabilities * (probabilities + epsilon).log()).sum(-1)


class CentroidPseudoLabels(nn.Module):
    r"""SHOT's pseudo-labels: the class whose centroid is nearest, over the whole target set.

    With x the feature, a 1 appended, scaled to length 1, and a the softmax in the first round and the
    one-hot labels of the first round in the second:

    .. math::
        c_k = Σ_x a_k(x) x / Σ_x a_k(x),   ŷ(x) = argmax_k cos(x, c_k)

    Only classes that have a sample compete: one that the classifier predicts in the first round, one of the
    first round's labels in the second (the official code with threshold 0).

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head

    Inputs: indices (B,) int64 or int32 in [0, N), best left on the CPU

    Outputs: (B,) int64 labels as of the last :meth:`initialize`

    Raises:
        UserError: a pass that misses samples or has other shapes; a use before the first pass; an index out
            of range

    Source: Liang, Hu & Feng, ICML 2020, Eq. 4–6.
    """

    refresh = "epoch"
    labels: Tensor

    def __init__(self, num_samples: int, num_classes: int, feature_dim: int):
        super().__init__()
        num_samples, num_classes = size("num_samples", num_samples), size("num_classes", num_classes)
        feature_dim = size("feature_dim", feature_dim)
        self.register_buffer("labels", torch.zeros(num_samples, dtype=torch.int64))
        self.full_pass = FullPass(num_samples, num_classes, feature_dim)

    @torch.no_grad()
    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Label every sample from one pass, (M,), (M, D), (M, K), that holds each sample at least once."""
        self.full_pass.receive(indices, features, logits)
        with torch.autocast(features.device.type, enabled=False):
            labels = _two_rounds(features.float(), logits.float())
        self.labels[indices.to(self.labels.device)] = labels.to(self.labels.device)

    def forward(self, indices: Tensor) -> Tensor:
        self.full_pass.require()
        if indices.device.type == "cpu":
            check_indices(indices, len(self.labels))
        return self.labels[indices.to(self.labels.device, non_blocking=True)]


def _two_rounds(features: Tensor, logits: Tensor) -> Tensor:
    features = nn.functional.normalize(nn.functional.pad(features, (0, 1), value=1.0))
    probabilities = logits.softmax(1)
    centroids = probabilities.T @ features
    labels = _nearest(features, centroids, probabilities.argmax(1))
    centroids = torch.zeros_like(centroids).index_add_(0, labels, features)
    return _nearest(features, centroids, labels)


def _nearest(features: Tensor, centroids: Tensor, labels: Tensor) -> Tensor:
    """The class among ``labels`` whose centroid, known up to its length, is nearest to each feature."""
    absent = torch.bincount(labels, minlength=len(centroids)) == 0
    directions = nn.functional.normalize(centroids)
    return torch.cat(
        [
            (rows @ directions.T).masked_fill_(absent, -torch.inf).argmax(1)
            for rows in torch.split(features, SAMPLES_AT_A_TIME)
        ]
    )
