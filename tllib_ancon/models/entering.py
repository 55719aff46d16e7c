"""What a wrapper does to images before they enter a part of it, found by one forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

TOLERANCE = 1e-4


class Affine(NamedTuple):
    """(images - mean) / std of each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def is_identity(self) -> bool:
        return all(abs(mean) < TOLERANCE for mean in self.mean) and all(abs(std - 1) < TOLERANCE for std in self.std)

    @property
    def levels(self) -> float:
        """The largest value of the images that it takes: 1 or 255."""
        return 255.0 if max(*self.mean, *self.std) > 1 + TOLERANCE else 1.0


def normalisation_before(network: nn.Module, part: nn.Module, channels: int, side: int) -> Affine | None:
    """What a network does to images (B, C, H, W) before they enter a part of it; None if that is no normalisation of
    each channel, or if the part is not called."""
    weights = next(network.parameters(), torch.empty(0))
    noise = torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0)).to(weights)
    entered: list[Tensor] = []

    def remember(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        tensors = [value for value in (*inputs, *named.values()) if isinstance(value, Tensor)]
        if tensors and not entered:
            entered.append(tensors[0].detach().clone())

    with _evaluating(network), ExitStack() as hooks, torch.no_grad():
        for module in part.modules():
            hooks.enter_context(module.register_forward_pre_hook(remember, with_kwargs=True))
        try:
            takes_pixels = getattr(network, "main_input_name", None) == "pixel_values"
            network(pixel_values=noise) if takes_pixels else network(noise)
        except Exception:  # of a user's own network, which the pass over the images tells
            return None
    return _fitted(noise, entered[0]) if entered and entered[0].shape == noise.shape else None


def _fitted(images: Tensor, entered: Tensor) -> Affine | None:
    """The normalisation of each channel that makes one of the other; None if none does."""
    before, after = (tensor.double().transpose(0, 1).flatten(1) for tensor in (images, entered))
    mean_before, mean_after = before.mean(1, keepdim=True), after.mean(1, keepdim=True)
    centred = before - mean_before
    scale = ((after - mean_after) * centred).sum(1, keepdim=True) / centred.square().sum(1, keepdim=True)
    if not bool(scale.isfinite().all() and (scale > 0).all()):
        return None
    expected = scale * centred + mean_after
    if not torch.allclose(expected, after, rtol=TOLERANCE, atol=TOLERANCE * float(scale.max())):
        return None
    std, mean = (1 / scale).flatten(), (mean_before - mean_after / scale).flatten()
    return Affine(tuple(mean.tolist()), tuple(std.tolist()))


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
