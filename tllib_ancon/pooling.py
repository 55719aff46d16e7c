"""The pooling between backbone and bottleneck, in TLLib's classifiers and in ours."""

from __future__ import annotations

from torch import Tensor, nn

from tllib_ancon.errors import UserError


class AveragePool(nn.Module):
    """TLLib's pooling where there is something to pool.

    Shape: (B, C, H, W) -> (B, C); (B, C) stays as it is

    Raises:
        UserError: another shape, e.g. the tokens (B, N, C) of a transformer
    """

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim == 2:
            return features
        if features.ndim == 4:
            return nn.functional.adaptive_avg_pool2d(features, 1).flatten(1)
        raise UserError(
            f"the backbone returns {tuple(features.shape)}; expected (B, C, H, W) or (B, C). Build a "
            "transformer so that it returns one vector an image"
        )
