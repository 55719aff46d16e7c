"""Call a network on images: with the arguments that it takes, in evaluation mode, and with one line for its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.runtime.errors import BadModel, named, one_line


def takes_pixel_values(network: nn.Module) -> bool:
    """Whether it is an image model of transformers, or one with adapters of PEFT."""
    return getattr(network, "main_input_name", None) == "pixel_values"


def output_for(network: nn.Module, images: Tensor) -> Any:
    """The output of a network for images."""
    if takes_pixel_values(network):
        return network(pixel_values=images)
    return network(images)


def called(network: nn.Module, images: Tensor) -> Any:
    """Output of a network for images in evaluation mode, without gradients; its error is one line."""
    try:
        with evaluating(network), torch.no_grad():
            return output_for(network, images)
    except Exception as error:  # any error can come out of a user's own network
        raise BadModel(
            f"the model cannot be called on images of shape {tuple(images.shape)} ({one_line(error)})",
            _advice(network, images),
        ) from error


def _advice(network: nn.Module, images: Tensor) -> str:
    """What to do about images that a network does not take."""
    size = f"{named('image_size')} sets that of files and pixels"
    shape = f"pass a model whose forward takes images alone, of this shape; {size}"
    weights = next(network.parameters(), None)
    if weights is None or not isinstance(images, Tensor):
        return shape
    if images.dtype != weights.dtype:
        return f"convert images of {images.dtype} to {weights.dtype}, the type of the model's weights"
    if images.device != weights.device:
        return f"move the images to {weights.device}, the device of the model's weights"
    return shape


def device_of(model: nn.Module) -> torch.device:
    """Where the weights of a model lie; the CPU without any."""
    return next(model.parameters(), torch.empty(0)).device


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In this context a network is in evaluation mode; after it each part is in the mode in which it was. A program of
    ``torch.export`` has one mode, and stays in it; a frozen one of TorchScript has none."""
    training = [module for module in network.modules() if getattr(module, "training", False)]
    with suppress(NotImplementedError):  # of a program of torch.export
        network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
