"""What the model last said of every target sample: the memory that neighbourhood methods search."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.full_pass import FullPass


class MemoryBank(nn.Module):
    """The normalised feature and the prediction of every sample, as of its last visit in any process.

    Args:
        num_samples (int): N, images of the whole target set, at least 2
        num_classes (int): K
        feature_dim (int): D, width of the features before the head

    Buffers:
        - features: (N, D) float32 of length 1
        - scores: (N, K) float32, softmax of the logits

    Raises:
        UserError: a first pass that misses samples or has other shapes; an update before the first pass
    """

    def __init__(self, num_samples: int, num_classes: int, feature_dim: int):
        super().__init__()
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
        self.features[indices] = nn.functional.normalize(features.float()).to(self.features.device)
        self.scores[indices] = probabilities.to(self.scores.device)
