"""One evaluation pass over the whole target set: its checks, and whether it has been made."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training.checks import check_dtype


class FullPass(nn.Module):
    """Guards a state that needs one pass over all N samples before the first step.

    Args:
        num_samples (int): N, images of the whole target set
        num_classes (int): K
        feature_dim (int): D, width of the features before the head
    """

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
            UserError: shapes that do not fit, an index out of range, a sample that is missing
        """
        if logits.ndim != 2 or logits.shape[1] != self.num_classes:
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


def check_indices(indices: Tensor, num_samples: int) -> None:
    """Raise :class:`UserError` unless ``indices`` are int64 or int32 in [0, num_samples). It waits for a device."""
    check_dtype(indices)
    if len(indices) and not 0 <= indices.min() <= indices.max() < num_samples:
        raise UserError(
            f"an index lies outside [0, {num_samples}): num_samples must be the size of the whole target set "
            "and every index the position of its image in it"
        )


def check_features(features: Tensor, batch: int, feature_dim: int) -> None:
    """Raise :class:`UserError` unless ``features`` is (batch, feature_dim)."""
    if features.shape != (batch, feature_dim):
        raise UserError(f"features have shape {tuple(features.shape)}; expected ({batch}, {feature_dim})")
