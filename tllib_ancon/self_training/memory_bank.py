"""What the model last said of every target sample: the memory that neighbourhood methods search, filled by one pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.checks import check_features, check_indices, check_logits, finite_rows, size
from tllib_ancon.self_training.precision import FixedPrecision


class FullPass(nn.Module):
    """Guards a state that needs one pass over all N samples before the first step.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head
    """

    made: Tensor

    def __init__(self, num_samples: int, num_classes: int, feature_dim: int):
        super().__init__()
        self.num_samples = num_samples
        self.num_classes = num_classes
        self.feature_dim = feature_dim
        self.register_buffer("made", torch.tensor(False))
        self._known_to_be_made = False

    def receive(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Take note of a pass, (M,), (M, D), (M, K).

        Raises:
            UserError: shapes that do not fit, an index out of range, a sample that is missing or not finite
        """
        check_logits(logits)
        if logits.shape[1] != self.num_classes:
            raise UserError(f"logits have shape {tuple(logits.shape)}; expected (N, {self.num_classes})")
        if indices.shape != logits.shape[:1]:
            raise UserError(f"indices have shape {tuple(indices.shape)}; expected ({len(logits)},) as logits")
        check_features(features, len(logits), self.feature_dim)
        check_indices(indices, self.num_samples)
        seen = torch.zeros(self.num_samples, dtype=torch.bool, device=indices.device)
        seen[indices] = True
        if not seen.all():
            raise UserError(
                f"the pass holds {int(seen.sum())} of {self.num_samples} samples; make it over the whole "
                "target set, with drop_last=False"
            )
        if not (features.isfinite().all() and logits.isfinite().all()):
            raise UserError("the pass holds features or logits that are not finite; the model has probably diverged")
        self.made.fill_(True)

    def require(self) -> None:
        """Raise :class:`UserError` before the first pass. (Reading the buffer stalls a device: once only.)"""
        if not self._known_to_be_made:
            if not self.made:
                raise UserError(
                    "the whole target set has not been seen yet: call initialize(indices, features, "
                    "logits) with one evaluation pass before the first step"
                )
            self._known_to_be_made = True


class MemoryBank(FixedPrecision):
    """The normalised feature and the prediction of every sample, as of its last finite visit in any process.

    Args:
        num_samples (int): N, images of the whole target set, at least 2
        num_classes (int): K
        feature_dim (int): D, width of the features before the head

    Attributes:
        features: (N, D) float32 of length 1
        scores: (N, K) float32, softmax of the logits

    Raises:
        UserError: a first pass that misses samples or has other shapes; an update before the first pass
    """

    features: Tensor
    scores: Tensor

    def __init__(self, num_samples: int, num_classes: int, feature_dim: int):
        super().__init__()
        num_samples, num_classes = size("num_samples", num_samples), size("num_classes", num_classes)
        feature_dim = size("feature_dim", feature_dim)
        if num_samples < 2:
            raise UserError(f"num_samples={num_samples}: neighbourhoods need at least two samples")
        self.register_buffer("features", torch.zeros(num_samples, feature_dim))
        self.register_buffer("scores", torch.zeros(num_samples, num_classes))
        self.full_pass = FullPass(num_samples, num_classes, feature_dim)

    @torch.no_grad()
    def initialize(self, indices: Tensor, features: Tensor, logits: Tensor) -> None:
        """Fill both banks from one pass, (M,), (M, D), (M, K), that holds each sample at least once."""
        self.full_pass.receive(indices, features, logits)
        self._write(indices, features, logits.float().softmax(1))

    @torch.no_grad()
    def update(self, indices: Tensor, features: Tensor, probabilities: Tensor) -> None:
        """Replace the rows of a batch, (B,), (B, D), (B, K), and of the other processes' batches."""
        self.full_pass.require()
        self._write(processes.gather(indices), processes.gather(features.float()), processes.gather(probabilities))

    def _write(self, indices: Tensor, features: Tensor, probabilities: Tensor) -> None:
        indices = indices.to(self.features.device, non_blocking=True)
        features = nn.functional.normalize(features.float()).to(self.features.device)
        probabilities = probabilities.to(self.scores.device)
        usable = finite_rows(features, probabilities)[:, None]
        self.features[indices] = torch.where(usable, features, self.features[indices])
        self.scores[indices] = torch.where(usable, probabilities, self.scores[indices])


Mixing = Callable[[Tensor, Tensor, float], Tensor]
"""(anchors (B, K): votes of the batch's samples, scores (B, M, K): predictions of their M neighbours, weight w) -> the
scores with the anchors in them, (B, M, K)"""


def mix_votes(anchors: Tensor, scores: Tensor, weight: float) -> Tensor:
    """The authors' mixing, w f̄ + (1 - w) s, with f̄ the raw number of votes: 1 / w of them take it beyond 1."""
    return weight * anchors.unsqueeze(1) + (1 - weight) * scores


def mix_distribution(anchors: Tensor, scores: Tensor, weight: float) -> Tensor:
    """The corrected mixing: f̄ is first made a distribution; a sample without a vote keeps s alone."""
    mass = anchors.sum(1, keepdim=True)
    distribution = anchors / mass.clamp_min(torch.finfo(anchors.dtype).tiny)
    return torch.where(mass.unsqueeze(1) > 0, mix_votes(distribution, scores, weight), scores)


def mix_as_vote(anchors: Tensor, scores: Tensor, weight: float) -> Tensor:
    """The prediction as one more vote, (f̄ + s) / (1 + Q): the votes' distribution has the weight Q / (1 + Q), with Q
    the sample's votes, and ``weight`` is unused."""
    counted = anchors.unsqueeze(1) + scores
    return counted / (1 + anchors.sum(1, keepdim=True).unsqueeze(1))


MIXINGS: dict[str, Mixing] = {"authors": mix_votes, "normalized": mix_distribution, "adaptive": mix_as_vote}


def with_anchors(scores: Tensor, anchors: Tensor | None, mixing: str, weight: float) -> Tensor:
    """Predictions (B, M, K) of neighbours with anchors (B, K), if there are any, mixed in.

    Raises:
        UserError: anchors of another shape
    """
    if anchors is None:
        return scores
    expected = (scores.shape[0], scores.shape[2])
    if anchors.shape != expected:
        raise UserError(f"anchors have shape {tuple(anchors.shape)}; expected {expected}, votes per sample")
    return MIXINGS[mixing](anchors.detach().float(), scores, weight)
