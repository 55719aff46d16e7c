"""How a network normalises images before they enter a part of it, found by one forward pass."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.models.outputs import evaluating, output_for

TOLERANCE = 1e-4


class _Normalisation(NamedTuple):
    """(images - mean) / std of each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def is_identity(self) -> bool:
        without_shift = all(abs(mean) < TOLERANCE for mean in self.mean)
        without_scale = all(abs(std - 1) < TOLERANCE for std in self.std)
        return without_shift and without_scale

    @property
    def levels(self) -> float:
        """The largest value of the images that it takes: 1 or 255."""
        if max(*self.mean, *self.std) > 1 + TOLERANCE:
            return 255.0
        return 1.0


def normalisation_before(network: nn.Module, part: nn.Module, channels: int, side: int) -> _Normalisation | None:
    """The normalisation that a network applies to images (B, C, H, W) before they enter a part of it; None if that is
    no normalisation of each channel, or if the part is not called."""
    noise = torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0))
    images = noise.to(next(network.parameters(), noise))
    entered: list[Tensor] = []

    def remember(module: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any]) -> None:
        tensors = [value for value in (*inputs, *named_inputs.values()) if isinstance(value, Tensor)]
        if tensors and not entered:
            entered.append(tensors[0].detach().clone())

    with evaluating(network), ExitStack() as hooks, torch.no_grad():
        for module in part.modules():
            hooks.enter_context(module.register_forward_pre_hook(remember, with_kwargs=True))
        try:
            output_for(network, images)
        except Exception:  # of a user's own network; the pass over the images reports it
            return None
    if not entered or entered[0].shape != images.shape:
        return None
    return _fitted(images, entered[0])


def _fitted(images: Tensor, entered: Tensor) -> _Normalisation | None:
    """The normalisation of each channel that turns the images into what entered; None if none does."""
    before = _values_by_channel(images)
    after = _values_by_channel(entered)
    mean_before = before.mean(1, keepdim=True)
    mean_after = after.mean(1, keepdim=True)
    centred = before - mean_before
    scale = ((after - mean_after) * centred).sum(1, keepdim=True) / centred.square().sum(1, keepdim=True)
    if not bool(scale.isfinite().all() and (scale > 0).all()):
        return None
    expected = scale * centred + mean_after
    if not torch.allclose(expected, after, rtol=TOLERANCE, atol=TOLERANCE * float(scale.max())):
        return None
    mean = (mean_before - mean_after / scale).flatten()
    std = (1 / scale).flatten()
    return _Normalisation(tuple(mean.tolist()), tuple(std.tolist()))


def _values_by_channel(images: Tensor) -> Tensor:
    """(B, C, H, W) -> (C, B H W) in float64."""
    return images.double().transpose(0, 1).flatten(1)
