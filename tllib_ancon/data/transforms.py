"""Image transforms: TLLib's, by the names its scripts give them, and torchvision's, which keep the aspect ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tllib_ancon.data.resizing import EVALUATION_RESIZINGS, KEEP_RATIO, TRAIN_RESIZINGS, Resizing
from tllib_ancon.errors import UserError
from tllib_ancon.settings import Settings, setting

Bytes = NDArray[np.uint8]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class TransformOptions(Settings):
    """What decides how an image becomes a tensor.

    ``default``, ``cen.crop``, ``ran.crop`` and ``res.`` are TLLib's: the picture is squashed to a square by Pillow's
    bicubic filter, as by its ``ResizeImage``. ``keep-ratio`` is torchvision's and timm's convention: the shorter side
    is resized to ``image_size / crop_fraction`` and the longer one in proportion, by the same filter; evaluation takes
    the centre, training a random resized crop.

    EXIF orientation is not applied by any of them: TLLib and torchvision's folders ignore it, and a model sees in
    adaptation what it saw in training. Turn the files themselves where that matters.

    Raises:
        UserError: a size, range or normalisation that no image can be given; an unknown resizing
    """

    train_resizing: str = setting("default", "of training images", choices=TRAIN_RESIZINGS)
    val_resizing: str = setting("default", "of evaluated images", choices=EVALUATION_RESIZINGS)
    resize_size: int = setting(224, "side in pixels of the square for the resizing res.", at_least=1)
    image_size: int = setting(224, "side in pixels of the crop", at_least=1)
    crop_fraction: float = setting(0.875, "side of the crop / side that is resized before", above=0, at_most=1)
    scale: tuple[float, float] = setting((0.5, 1.0), "area of the random resized crop", above=0)
    ratio: tuple[float, float] = setting((3 / 4, 4 / 3), "aspect ratio of the random resized crop", above=0)
    padding: int = setting(0, "pixels by which training images are padded, and cropped back at random", at_least=0)
    rotation: float = setting(0.0, "degrees by which training images are turned at most", at_least=0, at_most=180)
    horizontal_flip: bool = setting(True, "flip half of the training images")
    norm_mean: tuple[float, ...] = setting(IMAGENET_MEAN, "mean of each channel; one makes the image grey")
    norm_std: tuple[float, ...] = setting(IMAGENET_STD, "standard deviation of each channel", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale", "ratio"):
            low, high = getattr(self, name)
            if low > high:
                raise UserError(f"`{name}` {low} {high}: expected MIN and MAX with MIN <= MAX")
        if len(self.norm_mean) != len(self.norm_std) or len(self.norm_mean) not in (1, 3):
            raise UserError(
                f"`norm_mean` has {len(self.norm_mean)} values and `norm_std` {len(self.norm_std)}; both need 3, or 1 "
                "for grey"
            )

    @property
    def square(self) -> Resizing:
        """Of ``default``, ``cen.crop`` and ``ran.crop``: 256² for a crop of 224."""
        return Resizing(round(self.image_size / self.crop_fraction))

    @property
    def shorter_side(self) -> Resizing:
        """Of ``keep-ratio``; rounded as timm does."""
        return Resizing(math.floor(self.image_size / self.crop_fraction), keep_ratio=True)


@dataclass(frozen=True)
class ImageTransform:
    """PIL image -> normalised (C, H, W) float32 tensor, in parts that may run in different places.

    Attributes:
        resizing: what is done to every image first; it has no randomness
        crop: PIL image -> PIL image, with the randomness
        mean, std: normalisation a channel; one channel makes the image grey
    """

    resizing: Resizing
    crop: Callable[[Any], Any]
    mean: Sequence[float]
    std: Sequence[float]

    def __call__(self, image: Image.Image | Bytes) -> Tensor:
        return self.normalize(torch.from_numpy(np.array(self.pixels(image))))

    def pixels(self, image: Image.Image | Bytes) -> Bytes:
        """What is done before the device: an image, or the bytes (H, W, 3) of the resized one -> (H, W, C) uint8."""
        resized = Image.fromarray(image) if isinstance(image, np.ndarray) else self.resizing(image)
        cropped = self.crop(resized)
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
    """The transform with augmentation."""
    from torchvision import transforms

    return ImageTransform(*augmentation(options, transforms), options.norm_mean, options.norm_std)


def augmentation(options: TransformOptions, T: Any) -> tuple[Resizing, Callable[[Any], Any]]:
    """The resizing and what happens after it, by the classes of ``T``: ``torchvision.transforms`` or its ``v2``, which
    draw the same numbers."""
    from torchvision.transforms import Compose

    resizing, size = options.square, options.image_size
    random_resized_crop = T.RandomResizedCrop(size, options.scale, options.ratio)
    match options.train_resizing:
        case "default":
            crop = [random_resized_crop]
        case "cen.crop":
            crop = [T.CenterCrop(size)]
        case "ran.crop":
            crop = [T.RandomCrop(size)]
        case "res.":
            resizing, size, crop = Resizing(options.resize_size), options.resize_size, []
        case "keep-ratio":
            resizing, crop = options.shorter_side, [random_resized_crop]
    shift = [T.RandomCrop(size, padding=options.padding)] if options.padding else []
    turn = [T.RandomRotation(options.rotation)] if options.rotation else []
    flip = [T.RandomHorizontalFlip()] if options.horizontal_flip else []
    return resizing, Compose([*crop, *shift, *turn, *flip])


def evaluation_transform(options: TransformOptions) -> ImageTransform:
    """The transform without any randomness."""
    from torchvision import transforms as T

    centre, whole = T.CenterCrop(options.image_size), T.Compose([])
    resizing, crop = {
        "default": (options.square, centre),
        "res.": (Resizing(options.resize_size), whole),
        KEEP_RATIO: (options.shorter_side, centre),
    }[options.val_resizing]
    return ImageTransform(resizing, crop, options.norm_mean, options.norm_std)


def _a_channel(values: Sequence[float], images: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1).to(images.device, non_blocking=True)


def _cache_sized(images: Tensor) -> Sequence[Tensor]:
    """One image after the other on a CPU, whose cache holds one through all its steps; all at once on a GPU."""
    return images.flatten(0, -4).unbind() if images.ndim > 3 and images.device.type == "cpu" else [images]


def _uninitialised(shape: Sequence[int], device: torch.device) -> Tensor:
    """A float32 tensor; on a CPU from NumPy, which asks for huge pages: a batch is there in a fifth of the time."""
    if device.type == "cpu":
        return torch.from_numpy(np.empty(shape, np.float32))
    return torch.empty(shape, device=device)
