"""Call a network on images in evaluation mode, with one line for its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.runtime.errors import BadModel, named, one_line


def called(network: nn.Module, images: Tensor) -> Any:
    """Output of a network for images in evaluation mode, without gradients; its error is one line."""
    try:
        with evaluating(network), torch.no_grad():
            return network(images)
    except Exception as error:  # any error can come out of a user's own network
        raise BadModel(
            f"the model cannot be called on images of shape {tuple(images.shape)}, {images.dtype} on {images.device} "
            f"({one_line(error)})",
            f"pass a model whose forward takes images alone, of this shape, type and device; {named('image_size')} "
            f"sets the size of files and pixels, {named('norm_mean')} of one value makes them grey, and "
            f"{named('loader')} may return float tensors of any shape",
        ) from error


def as_inputs_of(network: nn.Module, images: Tensor) -> Tensor:
    """Images on the device of a network's weights, floats in their type."""
    weights = next((weight for weight in network.parameters() if weight.is_floating_point()), images)
    if images.is_floating_point():
        return images.to(weights)
    return images.to(weights.device)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In this context a network is in evaluation mode; after it each part is in the mode in which it was. A frozen
    program of TorchScript has no mode."""
    training = [module for module in network.modules() if getattr(module, "training", False)]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
