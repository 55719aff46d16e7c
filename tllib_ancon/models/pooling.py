"""The pooling between backbone and bottleneck, in TLLib's classifiers and in ours."""

from torch import Tensor, nn

from tllib_ancon.runtime.errors import UserError


class _AveragePool(nn.Module):
    """(B, C, H, W) -> (B, C), averaged as in TLLib; (B, C) is returned unchanged."""

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim == 2:
            return features
        if features.ndim == 4:
            return nn.functional.adaptive_avg_pool2d(features, 1).flatten(1)
        raise UserError(
            f"the backbone returns {tuple(features.shape)}; expected (B, C, H, W) or (B, C). Build a "
            "transformer so that it returns one vector an image"
        )


def create_pool_layer(pool: bool) -> nn.Module:
    """The average of a feature map, or without ``pool`` the identity."""
    if pool:
        return _AveragePool()
    return nn.Identity()
