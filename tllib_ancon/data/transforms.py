"""TLLib's image transforms, by the names its scripts give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tllib_ancon.data.images import load_image
from tllib_ancon.errors import UserError, unknown_name

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
TRAIN_RESIZINGS = ("default", "cen.crop", "ran.crop", "res.")
EVALUATION_RESIZINGS = ("default", "res.")


@dataclass(frozen=True)
class TransformOptions:
    """The flags of TLLib's scripts that decide how an image becomes a tensor.

    Attributes:
        train_resizing: ``default``: 256² then a random resized crop to the crop size; ``cen.crop``: 256² and the
            centre; ``ran.crop``: 256² and a random crop; ``res.``: resized to ``resize_size``²
        val_resizing: ``default``: 256² and the centre; ``res.``: resized to ``resize_size``²
        resize_size: side in pixels of ``res.``
        image_size: side in pixels of the crop; TLLib's 224
        scale, ratio: of the random resized crop
        padding: in pixels: training images are padded by as much on each side after the crop and cropped back at random
        rotation: in degrees: training images are turned by up to as much either way
        horizontal_flip: flip half of the training images
        mean, std: normalisation a channel, 3 or 1; one channel makes the image grey

    Raises:
        UserError: a size, range or normalisation that no image can be given
    """

    train_resizing: str = "default"
    val_resizing: str = "default"
    resize_size: int = 224
    image_size: int = 224
    scale: tuple[float, float] = (0.5, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    padding: int = 0
    rotation: float = 0.0
    horizontal_flip: bool = True
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD

    def __post_init__(self) -> None:
        for name in ("resize_size", "image_size"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1 pixel, got {getattr(self, name)}")
        if self.padding < 0:
            raise UserError(f"--padding must be at least 0 pixels, got {self.padding}")
        if not 0 <= self.rotation <= 180:
            raise UserError(f"--rotation must be in [0, 180] degrees, got {self.rotation}")
        for name in ("scale", "ratio"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf:
                raise UserError(f"--{name} {low} {high}: expected MIN and MAX with 0 < MIN <= MAX")
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise UserError(
                f"--norm-mean has {len(self.mean)} values and --norm-std {len(self.std)}; both need 3, or 1 for grey"
            )
        if not all(map(math.isfinite, self.mean)):
            raise UserError(f"--norm-mean must be finite, got {_words(self.mean)}")
        if not all(0 < value < math.inf for value in self.std):
            raise UserError(f"--norm-std must be above 0 and finite, got {_words(self.std)}")

    @property
    def side(self) -> int:
        """Side in pixels of the square that is resized before cropping: 256 for a crop of 224."""
        return round(self.image_size * 256 / 224)


@dataclass(frozen=True)
class ImageTransform:
    """PIL image -> normalised (C, H, W) float32 tensor, in parts that may run in different places.

    Attributes:
        side: in pixels, of the square that every image is first resized to; this part has no randomness
        crop: PIL image -> PIL image, with the randomness
        mean, std: normalisation a channel; one channel makes the image grey
        read: path -> PIL image of any size, or the square as bytes (side, side, 3)
    """

    side: int
    crop: Callable[[Any], Any]
    mean: Sequence[float]
    std: Sequence[float]
    read: Callable[[str], Image.Image | np.ndarray] = load_image

    def __call__(self, image: Image.Image | np.ndarray) -> Tensor:
        return self.normalize(torch.from_numpy(np.array(self.pixels(image))))

    def pixels(self, image: Image.Image | np.ndarray) -> np.ndarray:
        """What is done before the device: image -> (H, W, C) uint8."""
        from torchvision.transforms import functional as F

        square = Image.fromarray(image) if isinstance(image, np.ndarray) else F.resize(image, [self.side, self.side])
        cropped = self.crop(square)
        if self.grey:
            cropped = cropped.convert("L")
        return np.asarray(cropped).reshape(cropped.height, cropped.width, -1)

    def finish(self, pixels: Tensor, seeds: Sequence[int]) -> Tensor:
        """What is done on the device: (B, H, W, C) uint8 and the seeds of the images' random numbers ->
        (B, C, H, W) float32."""
        return self.normalize(pixels)

    def normalize(self, pixels: Tensor) -> Tensor:
        """(..., H, W, C) uint8 -> (..., C, H, W) float32, on the device of ``pixels``."""
        planes = pixels.movedim(-1, -3)
        images = _uninitialised(planes.shape, planes.device)
        mean, std = _a_channel(self.mean, images), _a_channel(self.std, images)
        for part, normalised in zip(_cache_sized(planes), _cache_sized(images), strict=True):
            normalised.copy_(part).div_(255).sub_(mean).div_(std)
        return images

    @property
    def grey(self) -> bool:
        return len(self.mean) == 1


def train_transform(options: TransformOptions) -> ImageTransform:
    """The transform with augmentation.

    Raises:
        UserError: an unknown resizing
    """
    from torchvision import transforms

    return ImageTransform(*augmentation(options, transforms), options.mean, options.std)


def augmentation(options: TransformOptions, T: Any) -> tuple[int, Callable[[Any], Any]]:
    """Side of the square and what happens to it, by the classes of ``T``: ``torchvision.transforms`` or its ``v2``,
    which draw the same numbers.

    Raises:
        UserError: an unknown resizing
    """
    from torchvision.transforms import Compose

    side, size = options.side, options.image_size
    match options.train_resizing:
        case "default":
            crop = [T.RandomResizedCrop(size, options.scale, options.ratio)]
        case "cen.crop":
            crop = [T.CenterCrop(size)]
        case "ran.crop":
            crop = [T.RandomCrop(size)]
        case "res.":
            side, size, crop = options.resize_size, options.resize_size, []
        case _:
            raise unknown_name("train resizing", options.train_resizing, TRAIN_RESIZINGS)
    shift = [T.RandomCrop(size, padding=options.padding)] if options.padding else []
    turn = [T.RandomRotation(options.rotation)] if options.rotation else []
    flip = [T.RandomHorizontalFlip()] if options.horizontal_flip else []
    return side, Compose([*crop, *shift, *turn, *flip])


def evaluation_transform(options: TransformOptions) -> ImageTransform:
    """The transform without any randomness.

    Raises:
        UserError: an unknown resizing
    """
    from torchvision import transforms as T

    match options.val_resizing:
        case "default":
            return ImageTransform(options.side, T.CenterCrop(options.image_size), options.mean, options.std)
        case "res.":
            return ImageTransform(options.resize_size, T.Compose([]), options.mean, options.std)
    raise unknown_name("evaluation resizing", options.val_resizing, EVALUATION_RESIZINGS)


def _words(values: Sequence[float]) -> str:
    return " ".join(map(str, values))


def _a_channel(values: Sequence[float], images: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1).to(images.device, non_blocking=True)


def _cache_sized(images: Tensor) -> Sequence[Tensor]:
    """One image after the other on a CPU, whose cache holds one through all its steps; all at once on a GPU."""
    return images.flatten(0, -4) if images.ndim > 3 and images.device.type == "cpu" else [images]


def _uninitialised(shape: Sequence[int], device: torch.device) -> Tensor:
    """A float32 tensor; on a CPU from NumPy, which asks for huge pages: a batch is there in a fifth of the time."""
    if device.type == "cpu":
        return torch.from_numpy(np.empty(shape, np.float32))
    return torch.empty(shape, device=device)
