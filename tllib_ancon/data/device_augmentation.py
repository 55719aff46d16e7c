"""Augmentation on the device: workers deliver whole squares, and are left with next to nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tllib_ancon.data.batch_crops import Geometry, crop_batch, draw_geometry
from tllib_ancon.data.images import seeded
from tllib_ancon.data.resizing import KEEP_RATIO
from tllib_ancon.data.transforms import Bytes, ImageTransform, TransformOptions, augmentation
from tllib_ancon.errors import UserError


@dataclass(frozen=True)
class DeviceAugmentation(ImageTransform):
    """An :class:`~tllib_ancon.data.transforms.ImageTransform` whose ``crop`` takes and gives (3, H, W) tensors and runs
    on their device.

    Each image of a batch has its own crop and flip, drawn as where workers augment: by its seed. Its pixels differ from
    theirs by up to 2 of 255 levels from the rounding of the interpolation, and at a rotation by the choice of the
    nearest pixel.

    torchvision's kernels take the images one by one. On a GPU, where each image costs some ten launches of kernels,
    crops and flips of a batch are two products of matrices (:mod:`~tllib_ancon.data.batch_crops`); a CPU is nine times
    faster with the kernels. ``python -m benchmarks.speed --only augmentation`` measures both.

    Attributes:
        crop: ``torchvision.transforms.v2.Compose``
        size: in pixels, of a side of the outcome
        at_once: crop a batch in one call. Default: on a GPU
    """

    crop: Any
    size: int = 0
    at_once: bool | None = None

    def __call__(self, image: Image.Image | Bytes) -> Tensor:
        square = torch.from_numpy(np.array(self.pixels(image)))
        return self.normalize(self._coloured(self.crop(square.movedim(-1, 0))).movedim(0, -1))

    def pixels(self, image: Image.Image | Bytes) -> Bytes:
        """The whole square, (side, side, 3) uint8: the cache's own bytes where there is one."""
        return image if isinstance(image, np.ndarray) else np.asarray(self.resizing(image))

    def finish(self, pixels: Tensor, seeds: Sequence[int]) -> Tensor:
        """(B, side, side, 3) uint8 and B seeds -> (B, C, H, W) float32."""
        at_once = pixels.device.type == "cuda" if self.at_once is None else self.at_once
        squares = pixels.movedim(-1, -3)
        geometries = self._geometries(seeds) if at_once else None
        if geometries is None:
            cropped = torch.stack([self._cropped(square, seed) for square, seed in zip(squares, seeds, strict=True)])
        else:
            cropped = crop_batch(squares, geometries, self.size)
        return self.normalize(self._coloured(cropped).movedim(-3, -1))

    def _geometries(self, seeds: Sequence[int]) -> list[Geometry] | None:
        """One for each image, or None where a rotation is no crop and no flip."""
        drawn = []
        for seed in seeds:
            with seeded(seed):
                geometry = draw_geometry(self.crop.transforms, self.resizing.side)
            if geometry is None:
                return None
            drawn.append(geometry)
        return drawn

    def _cropped(self, square: Tensor, seed: int) -> Tensor:
        with seeded(seed):
            cropped: Tensor = self.crop(square)
        return cropped

    def _coloured(self, image: Tensor) -> Tensor:
        from torchvision.transforms.v2 import functional as F

        grey: Tensor = F.rgb_to_grayscale(image) if self.grey else image
        return grey


def device_augmentation(options: TransformOptions) -> DeviceAugmentation:
    """:func:`~tllib_ancon.data.transforms.train_transform` with its augmentation on the device.

    Raises:
        UserError: a resizing that keeps the aspect ratio, whose images are no batch before they are cropped
    """
    from torchvision.transforms import v2

    if options.train_resizing == KEEP_RATIO:
        raise UserError(f"`device_augmentation` needs squares; choose another `train_resizing` than {KEEP_RATIO}")
    size = options.resize_size if options.train_resizing == "res." else options.image_size
    return DeviceAugmentation(*augmentation(options, v2), options.norm_mean, options.norm_std, size)
