"""Augmentation on the device: workers deliver whole squares, and are left with next to nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tllib_ancon.data.images import seeded
from tllib_ancon.data.transforms import KEEP_RATIO, Bytes, ImageTransform, TransformOptions, augmentation
from tllib_ancon.errors import UserError


@dataclass(frozen=True)
class DeviceAugmentation(ImageTransform):
    """An :class:`~tllib_ancon.data.transforms.ImageTransform` whose ``crop`` takes and gives (3, H, W) tensors and runs
    on their device.

    Each image of a batch has its own crop and flip, drawn as where workers augment: by its seed. Its pixels differ from
    theirs by the rounding of the interpolation, and at a rotation by the choice of the nearest pixel.

    torchvision's kernels take the images one by one. One kernel for all would be a ``grid_sample``, which does not
    antialias: it is up to 21 of 255 levels away where these are 2, and on a CPU six times slower.
    """

    def __call__(self, image: Image.Image | Bytes) -> Tensor:
        square = torch.from_numpy(np.array(self.pixels(image)))
        return self.normalize(self._augment(square.movedim(-1, 0)).movedim(0, -1))

    def pixels(self, image: Image.Image | Bytes) -> Bytes:
        """The whole square, (side, side, 3) uint8: the cache's own bytes where there is one."""
        return image if isinstance(image, np.ndarray) else np.asarray(self.resizing(image))

    def finish(self, pixels: Tensor, seeds: Sequence[int]) -> Tensor:
        """(B, side, side, 3) uint8 and B seeds -> (B, C, H, W) float32."""
        augmented = []
        for square, seed in zip(pixels.movedim(-1, -3), seeds, strict=True):
            with seeded(seed):
                augmented.append(self._augment(square))
        return self.normalize(torch.stack(augmented).movedim(-3, -1))

    def _augment(self, square: Tensor) -> Tensor:
        from torchvision.transforms.v2 import functional as F

        augmented = self.crop(square)
        return F.rgb_to_grayscale(augmented) if self.grey else augmented


def device_augmentation(options: TransformOptions) -> DeviceAugmentation:
    """:func:`~tllib_ancon.data.transforms.train_transform` with its augmentation on the device.

    Raises:
        UserError: a resizing that keeps the aspect ratio, whose images are no batch before they are cropped
    """
    from torchvision.transforms import v2

    if options.train_resizing == KEEP_RATIO:
        raise UserError(f"`device_augmentation` needs squares; choose another `train_resizing` than {KEEP_RATIO}")
    return DeviceAugmentation(*augmentation(options, v2), options.norm_mean, options.norm_std)
