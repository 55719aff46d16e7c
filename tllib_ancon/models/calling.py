"""Call a network on images: with the arguments that it takes, in evaluation mode, and with one line for its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.data.batches import Batch, num_rows, shape_text, tree_map
from tllib_ancon.models.outputs import tensors_in
from tllib_ancon.runtime.errors import BadModel, UserError, one_line
from tllib_ancon.runtime.text import counted

SHAPE = "; pass images of the shape that it takes, of files and pixels by `image_size`"
ONE_CHANNEL = "; pass images of one channel, with one number in each of `norm_mean` and `norm_std`"

USUAL_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of images for which people fix a network."""


def takes_pixel_values(network: nn.Module) -> bool:
    """Whether it is an image model of transformers, or one with adapters of PEFT."""
    return getattr(network, "main_input_name", None) == "pixel_values"


def output_for(network: nn.Module, images: Batch) -> Any:
    """The output of a network for images, or for several tensors, which it takes by their names."""
    if isinstance(images, Mapping):
        return network(**images)
    if takes_pixel_values(network):
        return network(pixel_values=images)
    return network(images)


def called(network: nn.Module, images: Batch, advice: str = SHAPE) -> Any:
    """Output of a network for images in evaluation mode, without gradients; an error ends with the ``advice``."""
    try:
        with evaluating(network), torch.no_grad():
            return output_for(network, images)
    except Exception as error:  # any error can come out of a user's own network
        raise _not_callable(network, images, error, advice) from error


def _not_callable(network: nn.Module, images: Batch, error: Exception, advice: str) -> UserError:
    """The error for a network that cannot be called on these images."""
    action = advice
    if "to have 1 channels" in str(error):
        action = ONE_CHANNEL
    elif 'required "forward" function' in str(error):
        action = "; pass the module in it that has a forward function"
    elif "unexpected keyword argument" in str(error):
        action = "; let a transform return a tensor, or name arrays as the forward's arguments"
    elif "positional argument" in str(error):
        action = "; its forward must take the images alone, (B, C, H, W): pass a module that does"
    elif isinstance(images, Tensor) and not images.is_floating_point():
        action = "; convert them to floats, as for the model's training"
    elif isinstance(images, Tensor) and images.dtype != _type_of_weights(network):
        action = f"; convert them to {_type_of_weights(network)}, the type of the model's weights"
    elif _on_another_device(images, network):
        action = "; move the images to the device of the model's weights"
    else:
        size = _only_size(network, images)
        if size is not None:
            action = (
                f"; it takes {counted(size, 'image')} at once, and a step may have any number: write x.shape[0] in "
                "place of the number in its forward, or export it with a dynamic batch size"
            )
    reason = one_line(error)
    return BadModel(f"the model cannot be called on images of shape {shape_text(images)} ({reason}){action}")


def _only_size(network: nn.Module, images: Batch) -> int | None:
    """A number of these images that a network takes, which cannot be called on all of them."""
    for size in USUAL_SIZES:
        rows = torch.arange(size) % num_rows(images)
        some = tree_map(partial(_rows, rows), images)
        with suppress(Exception), evaluating(network), torch.no_grad():
            output_for(network, some)
            return size
    return None


def _rows(positions: Tensor, tensor: Tensor) -> Tensor:
    return tensor[positions]


def _type_of_weights(network: nn.Module) -> torch.dtype:
    return next(network.parameters(), torch.empty(0)).dtype


def _on_another_device(images: Batch, network: nn.Module) -> bool:
    weights = next(network.parameters(), None)
    return weights is not None and any(tensor.device != weights.device for _, tensor in tensors_in(images))


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
