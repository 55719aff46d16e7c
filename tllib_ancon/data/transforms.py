"""Images to tensors: TLLib's transforms, by the names its scripts give them, torchvision's, which keep the aspect
ratio, and their augmentation in a worker or on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision import transforms
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from tllib_ancon.data.images import Bytes
from tllib_ancon.errors import UserError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
KEEP_RATIO = "keep-ratio"


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """In this context torch's random numbers on the CPU start from ``seed``. Afterwards they continue as before."""
    with torch.random.fork_rng([], device_type="cpu"):
        torch.default_generator.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Resizing:
    """PIL image -> PIL image, the first step of every transform. It is not random and can be cached."""

    side: int  # in pixels, of the square that the image is squashed to, or of its shorter side
    keep_ratio: bool = False
    resample: int = Image.Resampling.BICUBIC

    def __call__(self, image: Image.Image) -> Image.Image:
        width, height = image.size
        longer = self.side * max(image.size) // min(image.size) if self.keep_ratio else self.side
        size = (self.side, longer) if width <= height else (longer, self.side)
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
    resize_size: int = 0  # of the square of ``res.``; 0 if it is not known
    resample: int = Image.Resampling.BICUBIC  # Pillow's number of the filter that resizes
    floor_crop: bool = False  # round an evaluation crop's corner down, as transformers; else as torchvision
    assumed: str | None = None  # what is said of it where it is not known but assumed
    train_resizing: str = "default"
    scale: tuple[float, float] = (0.5, 1.0)  # least and largest fraction of the area in the random resized crop
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # least and largest width / height of it
    padding: int = 0
    rotation: float = 0.0
    horizontal_flip: bool = True

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise UserError(
                f"`norm_mean` has {len(self.mean)} values and `norm_std` {len(self.std)}; both need 3, or 1 for grey"
            )

    @property
    def train_size(self) -> int:
        return self.resize_size if self.train_resizing == "res." else self.image_size

    def resizing(self, name: str | None) -> Resizing:
        """The first step of a resizing of this name: 256² for a crop of 224, or a shorter side of as much."""
        side = self.image_size / self.crop_fraction
        if name == KEEP_RATIO:
            return Resizing(math.floor(side + 1e-6), True, self.resample)
        return Resizing(self.resize_size if name == "res." else round(side), False, self.resample)


@dataclass(frozen=True)
class ImageTransform:
    """PIL image -> normalised (C, H, W) float32 tensor; ``mean`` and ``std`` of one channel make the image grey."""

    resizing: Resizing
    crop: Callable[[Any], Any]
    mean: Sequence[float]
    std: Sequence[float]

    def __call__(self, image: Image.Image | Bytes) -> Tensor:
        return self.finish(torch.from_numpy(self.pixels(image))[None], [torch.initial_seed()])[0]

    def pixels(self, image: Image.Image | Bytes) -> Bytes:
        """What is done before the device: an image, or the bytes (H, W, 3) of the resized one -> (H, W, C) uint8."""
        resized = Image.fromarray(image) if isinstance(image, np.ndarray) else self.resizing(image)
        cropped = self.crop(resized)
        if len(self.mean) == 1:
            cropped = cropped.convert("L")
        return np.array(cropped).reshape(cropped.height, cropped.width, -1)

    def finish(self, pixels: Tensor, seeds: Sequence[int]) -> Tensor:
        """On the device: pixels (B, H, W, C) uint8 and seeds of random numbers -> (B, C, H, W) float32. A CPU, whose
        cache holds one image, takes one after the other, in memory from NumPy, which asks for huge pages."""
        planes, on_cpu = pixels.movedim(-1, -3), pixels.device.type == "cpu"
        shape = planes.shape
        images = torch.from_numpy(np.empty(shape, np.float32)) if on_cpu else torch.empty(shape, device=planes.device)
        mean, std = (
            torch.tensor(values).view(-1, 1, 1).to(images.device, non_blocking=True) for values in (self.mean, self.std)
        )
        for part, normalised in zip(planes, images, strict=True) if on_cpu else [(planes, images)]:
            normalised.copy_(part).div_(255).sub_(mean).div_(std)
        return images


def train_transform(options: Preprocessing) -> ImageTransform:
    resizing, crop = options.resizing(options.train_resizing), _augmentation(options, transforms)
    return ImageTransform(resizing, crop, options.mean, options.std)


def evaluation_transform(options: Preprocessing) -> ImageTransform:
    size = options.image_size
    centre = partial(_floor_crop, size) if options.floor_crop else transforms.CenterCrop(size)
    crop = transforms.Compose([] if options.val_resizing == "res." else [centre])
    return ImageTransform(options.resizing(options.val_resizing), crop, options.mean, options.std)


def second_view(options: Preprocessing) -> Callable[[Tensor], Tensor] | None:
    """A function from training images (B, C, H, W) to another view of each; None where training does not augment. It
    mirrors as training does. Else it shifts, by the padding or an eighth of the image."""
    if options.horizontal_flip:
        return mirror
    if options.padding or options.train_resizing not in ("cen.crop", "res."):
        return partial(shift, options.padding or max(1, options.train_size // 8))
    return None


def mirror(images: Tensor) -> Tensor:
    return images.flip(-1)


def shift(reach: int, images: Tensor) -> Tensor:
    """Shift a batch by up to ``reach`` pixels in one random direction, and repeat its border."""
    padded = nn.functional.pad(images, [reach] * 4, mode="replicate")
    top, left = torch.randint(2 * reach + 1, (2,)).tolist()
    return padded[..., top : top + images.shape[-2], left : left + images.shape[-1]]


def _floor_crop(side: int, image: Image.Image) -> Image.Image:
    """The centre of ``side`` x ``side`` pixels, its corner rounded down, where torchvision rounds half to even."""
    left, top = ((length - side) // 2 for length in image.size)
    return image.crop((left, top, left + side, top + side))


def device_augmentation(options: Preprocessing) -> DeviceAugmentation:
    """:func:`train_transform` with its augmentation on the device, whose batches need squares."""
    if options.train_resizing == KEEP_RATIO:
        raise UserError(f"`device_augmentation` needs squares; choose another `train_resizing` than {KEEP_RATIO}")
    resizing, crop = options.resizing(options.train_resizing), _augmentation(options, v2)
    at_once = False if options.rotation else None
    return DeviceAugmentation(resizing, crop, options.mean, options.std, options.train_size, at_once)


def _augmentation(options: Preprocessing, T: Any) -> Any:
    """The steps after the resizing, by the classes of ``T``: ``torchvision.transforms`` or its ``v2``."""
    name, size = options.train_resizing, options.train_size
    crops = {"cen.crop": [T.CenterCrop(size)], "ran.crop": [T.RandomCrop(size)], "res.": []}
    steps = crops.get(name, [T.RandomResizedCrop(size, options.scale, options.ratio)])
    if options.padding:
        steps.append(T.RandomCrop(size, padding=options.padding))
    if options.rotation:
        steps.append(T.RandomRotation(options.rotation))
    if options.horizontal_flip:
        steps.append(T.RandomHorizontalFlip())
    return transforms.Compose(steps)


@dataclass(frozen=True)
class DeviceAugmentation(ImageTransform):
    """An :class:`ImageTransform` whose ``crop`` maps (3, H, W) tensors on their device. Workers deliver whole squares.

    Each image has the crop and flip that a worker would draw. Pixels differ by up to 2 of 255 levels. On a GPU, crops
    and flips of a batch are two matrix products (:func:`crop_batch`), as each image would launch ten kernels. A CPU is
    nine times faster with torchvision's kernels. ``python -m benchmarks.speed --only augmentation`` measures both."""

    crop: Any
    size: int  # side of the outcome in pixels
    at_once: bool | None  # crop a batch in one call, which cannot turn an image; None: on a GPU

    def pixels(self, image: Image.Image | Bytes) -> Bytes:
        return image if isinstance(image, np.ndarray) else np.array(self.resizing(image))

    def finish(self, pixels: Tensor, seeds: Sequence[int]) -> Tensor:
        squares = pixels.movedim(-1, -3)
        drawn: list[Any] = []
        at_once = pixels.is_cuda if self.at_once is None else self.at_once
        draw = partial(draw_geometry, self.crop.transforms) if at_once else self.crop
        for square, seed in zip(squares, seeds, strict=True):
            with seeded(seed):
                drawn.append(draw(square))
        cropped = crop_batch(squares, drawn, self.size) if at_once else torch.stack(drawn)
        coloured: Tensor = functional.rgb_to_grayscale(cropped) if len(self.mean) == 1 else cropped
        return super().finish(coloured.movedim(-3, -1), seeds)


class Geometry(NamedTuple):
    """A crop of a square, a shift of the resized crop, into which black comes, and a flip, in pixels."""

    top: int
    left: int
    height: int
    width: int
    down: int = 0
    right: int = 0
    flip: bool = False


def draw_geometry(steps: Iterable[Any], square: Tensor) -> Geometry:
    """The geometry that steps of ``torchvision.transforms.v2`` give a square, by the same random numbers."""
    side = square.shape[-1]
    geometry = Geometry(0, 0, side, side)
    for transform in steps:
        match transform:
            case v2.RandomCrop() if transform.padding is not None:
                drawn = transform.make_params([torch.empty(3, *transform.size, device="meta")])
                left, top, _, _ = drawn["padding"]
                geometry = geometry._replace(down=drawn["top"] - top, right=drawn["left"] - left)
            case v2.RandomResizedCrop() | v2.RandomCrop():
                drawn = transform.make_params([square])
                geometry = Geometry(drawn["top"], drawn["left"], drawn["height"], drawn["width"])
            case v2.CenterCrop():
                height, width = transform.size
                geometry = Geometry(round((side - height) / 2), round((side - width) / 2), height, width)
            case v2.RandomHorizontalFlip():
                geometry = geometry._replace(flip=bool(torch.rand(1) < transform.p))
            case _:
                raise TypeError(f"{transform} is neither a crop nor a flip")
    return geometry


def crop_batch(squares: Tensor, geometries: Sequence[Geometry], size: int) -> Tensor:
    """Crop, resize, shift and flip each square in its own way: (B, C, H, W) uint8 -> (B, C, size, size) uint8.

    Row r of an output is the mean of the input's rows by a triangle around its place, clipped at the crop, as of
    torch's antialiased bilinear resize. Columns are alike, so that an output is :math:`W_r X W_c^T`."""
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
