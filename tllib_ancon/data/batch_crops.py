"""Crops, shifts and flips of a whole batch as two products of matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Geometry(NamedTuple):
    """What is done to one square, in this order.

    Attributes:
        top, left, height, width: of the crop, in pixels
        down, right: of the shift of the resized crop; what comes in is black
        flip: left and right are exchanged
    """

    top: int
    left: int
    height: int
    width: int
    down: int = 0
    right: int = 0
    flip: bool = False


def draw_geometry(transforms: Iterable[Any], side: int) -> Geometry | None:
    """The geometry that these transforms of ``torchvision.transforms.v2`` would give a square, by the same random
    numbers; None if one of them is no crop and no flip.

    Args:
        transforms: any of a crop, a ``RandomCrop`` with padding after it, and a flip, in this order
        side: in pixels, of the square
    """
    from torchvision.transforms import v2

    found = Geometry(0, 0, side, side)
    for transform in transforms:
        square = torch.empty(3, found.height, found.width, device="meta")
        match transform:
            case v2.RandomResizedCrop():
                drawn = transform.make_params([square])
                found = Geometry(drawn["top"], drawn["left"], drawn["height"], drawn["width"])
            case v2.CenterCrop():
                height, width = transform.size
                found = Geometry(round((side - height) / 2), round((side - width) / 2), height, width)
            case v2.RandomCrop(padding=None):
                drawn = transform.make_params([square])
                found = Geometry(drawn["top"], drawn["left"], drawn["height"], drawn["width"])
            case v2.RandomCrop():
                size = torch.empty(3, *transform.size, device="meta")
                drawn = transform.make_params([size])
                left, top, _, _ = drawn["padding"]
                found = found._replace(down=drawn["top"] - top, right=drawn["left"] - left)
            case v2.RandomHorizontalFlip():
                found = found._replace(flip=bool(torch.rand(1) < transform.p))
            case _:
                return None
    return found


def crop_batch(squares: Tensor, geometries: Sequence[Geometry], size: int) -> Tensor:
    """Crop, resize, shift and flip each square in its own way.

    Row r of an output is the mean of the input's rows by the weights of an antialiased bilinear resize, which are those
    of torch and Pillow: a triangle around the row's place, as wide as a pixel of the output or of the input, whichever
    is larger, and cut off at the crop. The same holds for columns, so that an output is :math:`W_r X W_c^T`.

    Args:
        size: side of the output in pixels

    Shape: (B, C, H, W) uint8 and B geometries -> (B, C, size, size) uint8, rounded once where torch and Pillow round
    after each of two passes
    """
    top, left, height, width, down, right, flip = torch.tensor(geometries, device=squares.device).unbind(1)
    rows = torch.arange(size, device=squares.device).expand(len(squares), size)
    columns = torch.where(flip[:, None].bool(), size - 1 - rows, rows)
    vertical = _weights(rows + down[:, None], size, top, height, squares.shape[-2])
    horizontal = _weights(columns + right[:, None], size, left, width, squares.shape[-1])
    with torch.autocast(squares.device.type, enabled=False):
        resized = vertical[:, None] @ (squares.float() @ horizontal[:, None].mT)
    return resized.round_().clamp_(0, 255).byte()


def _weights(places: Tensor, size: int, start: Tensor, length: Tensor, side: int) -> Tensor:
    """(B, size) places in the resized crop -> (B, size, side) weights of the input's pixels; 0 at places outside."""
    start, length = start[:, None, None], length[:, None, None]
    scale = length / size
    pixels = torch.arange(side, device=places.device)
    distance = pixels + 0.5 - start - scale * (places[..., None] + 0.5)
    weights = (1 - distance.abs() / scale.clamp(min=1)).clamp(min=0)
    weights = weights * ((pixels >= start) & (pixels < start + length))
    inside = ((places >= 0) & (places < size))[..., None]
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9) * inside
