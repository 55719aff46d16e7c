"""TLLib's image transforms, by the names its scripts give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tllib_ancon.errors import unknown_name

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
        horizontal_flip: flip half of the training images
        mean, std: normalisation a channel
    """

    train_resizing: str = "default"
    val_resizing: str = "default"
    resize_size: int = 224
    image_size: int = 224
    scale: tuple[float, float] = (0.5, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    horizontal_flip: bool = True
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD

    @property
    def side(self) -> int:
        """Side in pixels of the square that is resized before cropping: 256 for a crop of 224."""
        return round(self.image_size * 256 / 224)


def train_transform(options: TransformOptions) -> Callable[[Any], Any]:
    """PIL image -> normalised (C, H, W) float tensor, with augmentation.

    Raises:
        UserError: an unknown resizing
    """
    from torchvision import transforms as T

    side = T.Resize((options.side, options.side))
    match options.train_resizing:
        case "default":
            resizing = [side, T.RandomResizedCrop(options.image_size, options.scale, options.ratio)]
        case "cen.crop":
            resizing = [side, T.CenterCrop(options.image_size)]
        case "ran.crop":
            resizing = [side, T.RandomCrop(options.image_size)]
        case "res.":
            resizing = [T.Resize((options.resize_size, options.resize_size))]
        case _:
            raise unknown_name("train resizing", options.train_resizing, TRAIN_RESIZINGS)
    flip = [T.RandomHorizontalFlip()] if options.horizontal_flip else []
    return T.Compose([*resizing, *flip, *_to_tensor(options)])


def evaluation_transform(options: TransformOptions) -> Callable[[Any], Any]:
    """PIL image -> normalised (C, H, W) float tensor, without any randomness.

    Raises:
        UserError: an unknown resizing
    """
    from torchvision import transforms as T

    match options.val_resizing:
        case "default":
            resizing = [T.Resize((options.side, options.side)), T.CenterCrop(options.image_size)]
        case "res.":
            resizing = [T.Resize((options.resize_size, options.resize_size))]
        case _:
            raise unknown_name("evaluation resizing", options.val_resizing, EVALUATION_RESIZINGS)
    return T.Compose([*resizing, *_to_tensor(options)])


def _to_tensor(options: TransformOptions) -> list[Any]:
    from torchvision import transforms as T

    channels = [T.Grayscale()] if len(options.mean) == 1 else []
    return [*channels, T.ToTensor(), T.Normalize(options.mean, options.std)]
