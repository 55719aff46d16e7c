"""Images to tensors: TLLib's transforms, by the names its scripts give them, and torchvision's, which keep the aspect
ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tllib_ancon.data.readers import Bytes
from tllib_ancon.runtime.errors import BadSetting, named

Transform = Callable[[Any], Any]
"""What the data hold -> tensor (C, H, W)."""

View = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) -> another view of each."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
KEEP_RATIO = "keep-ratio"


@dataclass(frozen=True)
class Resizing:
    """PIL image -> PIL image, the first step of every transform. It is not random and can be cached."""

    side: int  # in pixels, of the square that the image is squashed to, or of its shorter side
    keep_ratio: bool = False
    resample: int = Image.Resampling.BICUBIC

    def __call__(self, image: Image.Image) -> Image.Image:
        width, height = image.size
        if self.keep_ratio:
            longer = self.side * max(image.size) // min(image.size)
        else:
            longer = self.side
        if width <= height:
            size = (self.side, longer)
        else:
            size = (longer, self.side)
        return image.resize(size, self.resample)


@dataclass(frozen=True)
class Preprocessing:
    """How images become the tensors that a network takes, and how training augments them. It travels with the model.
    ``keep-ratio`` is torchvision's and timm's convention, the other resizings are TLLib's. None applies EXIF
    orientation, as TLLib and torchvision's folders."""

    mean: tuple[float, ...] = IMAGENET_MEAN  # of each channel, of values in [0, 1], as std is
    std: tuple[float, ...] = IMAGENET_STD
    image_size: int = 0  # side in pixels; 0 if any will do
    crop_fraction: float = 0.875  # side of the crop / side that is resized before
    val_resizing: str | None = None  # of evaluated images; None if it is not known
    resample: int = Image.Resampling.BICUBIC  # Pillow's number of the filter that resizes
    train_resizing: str = "default"
    scale: tuple[float, float] = (0.5, 1.0)  # least and largest fraction of the area in the random resized crop
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # least and largest width / height of it
    padding: int = 0
    rotation: float = 0.0
    horizontal_flip: bool = True
    transform: Transform | None = None  # the caller's or a library's, which does all of it
    train_transform: Transform | None = None  # the caller's for training, beside that one
    origin: str = field(default="", compare=False)  # what declares it, in words

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise BadSetting(
                f"{named('norm_mean')} has {len(self.mean)} values and {named('norm_std')} {len(self.std)}",
                "give both 3, or 1 for grey",
                setting="norm_mean",
            )

    def resizing(self, name: str | None) -> Resizing:
        """The first step of a resizing of this name: 256² for a crop of 224, or a shorter side of as much."""
        side = self.image_size / self.crop_fraction
        if name == KEEP_RATIO:
            return Resizing(math.floor(side + 1e-6), True, self.resample)
        return Resizing(self.image_size if name == "res." else round(side), False, self.resample)

    def for_training(self) -> ImageTransform:
        """Image -> tensor, augmented."""
        from torchvision import transforms  # it starts slowly, and help texts of commands import this file

        size = self.image_size
        steps: list[Any] = []
        if self.train_resizing == "cen.crop":
            steps.append(transforms.CenterCrop(size))
        elif self.train_resizing == "ran.crop":
            steps.append(transforms.RandomCrop(size))
        elif self.train_resizing != "res.":
            steps.append(transforms.RandomResizedCrop(size, self.scale, self.ratio))
        if self.padding:
            steps.append(transforms.RandomCrop(size, padding=self.padding))
        if self.rotation:
            steps.append(transforms.RandomRotation(self.rotation))
        if self.horizontal_flip:
            steps.append(transforms.RandomHorizontalFlip())
        return ImageTransform(self.resizing(self.train_resizing), transforms.Compose(steps), self.mean, self.std)

    def for_evaluation(self) -> ImageTransform:
        """Image -> tensor, without augmentation."""
        from torchvision import transforms  # as above

        steps: list[Any] = []
        if self.val_resizing != "res.":
            steps.append(transforms.CenterCrop(self.image_size))
        return ImageTransform(self.resizing(self.val_resizing), transforms.Compose(steps), self.mean, self.std)

    def second_view(self) -> View | None:
        """A function from training images (B, C, H, W) to another view of each; None where training does not augment.
        It mirrors as training does. Else it shifts, by the padding or an eighth of the image."""
        if self.horizontal_flip:
            return mirror
        if self.padding or self.train_resizing not in ("cen.crop", "res."):
            return partial(_shift, self.padding or max(1, self.image_size // 8))
        return None


@dataclass(frozen=True)
class ImageTransform:
    """PIL image -> normalised (C, H, W) float32 tensor; ``mean`` and ``std`` of one channel make the image grey."""

    resizing: Resizing
    crop: Callable[[Any], Any]
    mean: Sequence[float]
    std: Sequence[float]

    def __call__(self, image: Image.Image | Bytes) -> Tensor:
        return self.normalized(torch.from_numpy(self.pixels(image))[None])[0]

    def pixels(self, image: Image.Image | Bytes) -> Bytes:
        """What is done before the device: an image, or the bytes (H, W, 3) of the resized one -> (H, W, C) uint8."""
        if isinstance(image, np.ndarray):
            resized = Image.fromarray(image)
        else:
            resized = self.resizing(image)
        cropped = self.crop(resized)
        if len(self.mean) == 1:
            cropped = cropped.convert("L")
        return np.array(cropped).reshape(cropped.height, cropped.width, -1)

    def normalized(self, pixels: Tensor) -> Tensor:
        """Pixels (B, H, W, C) uint8 -> (B, C, H, W) float32 on their device."""
        mean = torch.tensor(self.mean).view(-1, 1, 1).to(pixels.device, non_blocking=True)
        std = torch.tensor(self.std).view(-1, 1, 1).to(pixels.device, non_blocking=True)
        images = pixels.movedim(-1, -3).to(torch.float32, memory_format=torch.contiguous_format)
        return images.div_(255).sub_(mean).div_(std)


_SHIFT = 1 / 32
"""Shift to the right and down, as a fraction of the side: small enough to be familiar to any model."""


def shifted(images: Tensor) -> Tensor:
    """Images (B, C, H, W) moved right and down by a 32nd of their side; the border repeats."""
    reach = max(1, round(_SHIFT * images.shape[-1]))
    padded = nn.functional.pad(images, [reach, 0, reach, 0], mode="replicate")
    return padded[..., : images.shape[-2], : images.shape[-1]]


def mirror(images: Tensor) -> Tensor:
    return images.flip(-1)


def _shift(reach: int, images: Tensor) -> Tensor:
    """Shift a batch by up to ``reach`` pixels in one random direction, and repeat its border."""
    padded = nn.functional.pad(images, [reach] * 4, mode="replicate")
    top, left = torch.randint(2 * reach + 1, (2,)).tolist()
    height, width = images.shape[-2:]
    return padded[..., top : top + height, left : left + width]
