"""What a network expects of its images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from tllib_ancon.data.transforms import IMAGENET_MEAN, IMAGENET_STD


@dataclass(frozen=True)
class Preprocessing:
    """How pictures become the tensors that a network was trained on.

    Attributes:
        mean, std: of each channel, of values in [0, 1]
        image_size: side in pixels; None if any will do
        crop_fraction: side of the crop / side that is resized before
        val_resizing, resize_size: how pictures were resized for evaluation, and to which side; None if it is not known
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_size: int | None = None
    crop_fraction: float = 0.875
    val_resizing: str | None = None
    resize_size: int | None = None

    @staticmethod
    def centred(channels: int, image_size: int | None = None) -> Preprocessing:
        """To [-1, 1]."""
        return Preprocessing((0.5,) * channels, (0.5,) * channels, image_size)


def preprocessing_of(network: nn.Module) -> Preprocessing | None:
    """What timm or torchvision say about a network of theirs, or a classifier of this package about its backbone; None
    for a network of another origin.

    A network of timm carries its metadata. One of torchvision does not, but all its weights for classification were
    trained with ImageNet's mean and standard deviation.
    """
    own = getattr(network, "preprocessing", None)
    if isinstance(own, Preprocessing):
        return own
    metadata = getattr(network, "pretrained_cfg", None)
    if metadata:
        side = _side(network) or metadata["input_size"][-1]
        return Preprocessing(tuple(metadata["mean"]), tuple(metadata["std"]), side, metadata.get("crop_pct") or 0.875)
    if type(network).__module__.startswith("torchvision.models."):
        return Preprocessing(IMAGENET_MEAN, IMAGENET_STD, getattr(network, "image_size", 224))
    return None


def _side(network: nn.Module) -> int | None:
    """Of the images that a network was built for, where its patches are counted."""
    sizes = (getattr(module, "img_size", None) for module in network.modules())
    return next((size[-1] for size in sizes if isinstance(size, tuple)), None)
