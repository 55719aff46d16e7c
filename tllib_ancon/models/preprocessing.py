"""The images that a network takes: their preprocessing, as its library declares it, their channels and their size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tllib_ancon.data.transforms import IMAGENET_MEAN, IMAGENET_STD, KEEP_RATIO, Preprocessing, evaluation_transform
from tllib_ancon.models.calling import takes_pixel_values
from tllib_ancon.runtime.errors import BadModel, UserError, named, one_line
from tllib_ancon.runtime.types import Options

USUAL_SIDE = 224
USUAL_CROP = 0.875

FOLDED = 16
"""Channels from which a first convolution takes blocks of pixels rather than images."""

LEVELS = 1
"""Of 255, the mean over pixels: torchvision's resizing, which most processors use, rounds otherwise than Pillow's."""

LIBRARIES = ("timm", "transformers", "open_clip", "peft")
"""Packages whose models have metadata about the images that they take."""

OPEN_CLIP_RESIZINGS = {"shortest": KEEP_RATIO, "squash": "default"}


def _change() -> str:
    return f"{named('norm_mean')} and {named('norm_std')} change it"


def preprocessing_of(network: nn.Module) -> Preprocessing | None:
    """The preprocessing that a network declares itself; None if it declares none, as a module around another.

    Declared by its attribute ``preprocessing``, metadata of timm, open_clip or transformers, or torchvision's models.
    Each call derives it again, for transformers from the processor's file: callers keep the result.
    """
    declared = getattr(network, "preprocessing", None)
    if isinstance(declared, Preprocessing):
        return declared
    if _computes_as_its_library(network):
        return _declared_by(network)
    if _is_of_torchvision(network):
        return Preprocessing(IMAGENET_MEAN, IMAGENET_STD, getattr(network, "image_size", USUAL_SIDE))
    return None


def probe_images(network: nn.Module, preprocessing: Preprocessing | None) -> Tensor:
    """Two black images of the size and channels of a network, where nothing declares them of 224 pixels in RGB."""
    declared = preprocessing or Preprocessing()
    side = declared.image_size or USUAL_SIDE
    channels = channels_of(network) or len(declared.mean)
    parameter = next(network.parameters(), torch.empty(0))
    return parameter.new_zeros(2, channels, side, side)


def channels_of(network: nn.Module) -> int | None:
    """Channels of the images of a network of timm or torchvision, by its first convolution; None for others, and for a
    network that folds pixels into channels first."""
    if not _is_of_torchvision(network) and not hasattr(network, "pretrained_cfg"):
        return None
    for part in network.modules():
        if isinstance(part, nn.Conv2d):
            if part.in_channels < FOLDED:
                return part.in_channels
            return None
    return None


def is_processor(transform: object) -> bool:
    """Whether it is an image processor of transformers, or a processor that has one."""
    return hasattr(transform, "image_mean") or hasattr(transform, "image_processor")


def preprocessing_of_processor(processor: Any) -> Preprocessing:
    """The preprocessing of an image processor of transformers, for evaluated images. An image of noise finds its sizes,
    as each class decides in its own way how to resize and crop."""
    image_processor = getattr(processor, "image_processor", processor)
    kind = type(image_processor).__name__
    advice = (
        f"pass {named('train_transform')} and {named('evaluation_transform')} as functions, image -> tensor (C, H, W)"
    )
    size = getattr(image_processor, "size", None) or {}
    side = size.get("shortest_edge") or size.get("height")
    if not side:
        raise BadModel(f"{kind} has no size with shortest_edge or height", advice)
    random = np.random.default_rng(0)
    noise = Image.fromarray(random.integers(0, 256, (2 * side // 3, side, 3), dtype=np.uint8))
    try:
        expected = image_processor(noise, return_tensors="pt")["pixel_values"][0]
    except Exception as error:  # of a library's own code
        raise BadModel(f"{kind} cannot be applied to an RGB image ({one_line(error)})", advice) from error
    for preprocessing in _ways_to_resize(image_processor, side, expected.shape[-1]):
        prepared = evaluation_transform(preprocessing)(noise)
        if prepared.shape != expected.shape:
            continue
        difference = float((prepared - expected).abs().mean())
        if difference * min(preprocessing.std) * 255 < LEVELS:
            return preprocessing
    raise BadModel(f"{kind} does more than to resize, crop and normalise images", advice)


def _ways_to_resize(image_processor: Any, side: int, image_size: int) -> Iterator[Preprocessing]:
    """Preprocessings with the processor's normalisation that differ in how they resize."""
    levels = 255.0  # of [0, 1] to the values that are normalised
    if image_processor.do_rescale:
        levels *= image_processor.rescale_factor
    mean = (0.0,) * 3
    std = (1.0,) * 3
    if image_processor.do_normalize:
        mean = image_processor.image_mean
        std = image_processor.image_std
    crop_fraction = getattr(image_processor, "crop_pct", None) or 224 / 256
    for resized_side in (side, int(side / crop_fraction)):
        for resizing in (KEEP_RATIO, "default"):
            yield Preprocessing(
                mean=tuple(value / levels for value in mean),
                std=tuple(value / levels for value in std),
                image_size=image_size,
                crop_fraction=image_size / resized_side,
                val_resizing=resizing,
                resample=int(image_processor.resample),
                floor_crop=True,
            )


def _computes_as_its_library(network: nn.Module) -> bool:
    """Whether its forward is that of a library, and no other of a subclass or of the object."""
    return network.forward.__module__.partition(".")[0] in LIBRARIES


def _is_of_torchvision(network: nn.Module) -> bool:
    return type(network).__module__.startswith("torchvision.models.")


def _declared_by(part: nn.Module) -> Preprocessing | None:
    """The preprocessing in the metadata of a module of timm, open_clip or transformers."""
    metadata = getattr(part, "pretrained_cfg", None)
    if metadata:
        return _of_timm(part, metadata)
    open_clip_settings = getattr(part, "preprocess_cfg", None)
    if open_clip_settings:
        return _of_open_clip(open_clip_settings)
    if takes_pixel_values(part):
        return _of_transformers(part)
    return None


def _of_timm(network: nn.Module, metadata: Options) -> Preprocessing:
    mean = tuple(metadata["mean"])
    std = tuple(metadata["std"])
    crop_fraction = metadata.get("crop_pct") or USUAL_CROP
    preprocessing = Preprocessing(mean, std, _side_of_timm(network, metadata), crop_fraction)
    if channels_of(network) != 1 or len(mean) == 1:
        return preprocessing
    grey_mean = sum(mean) / len(mean)
    grey_std = sum(std) / len(std)
    assumption = (
        f"the network takes one channel; assumed: mean {grey_mean:.3f}, std {grey_std:.3f}, the average over RGB; "
        f"{_change()}"
    )
    return replace(preprocessing, mean=(grey_mean,), std=(grey_std,), assumed=assumption)


def _side_of_timm(network: nn.Module, metadata: Options) -> int:
    """The side that the network was built for, which may differ from that of its pre-trained weights."""
    for module in network.modules():
        size = getattr(module, "img_size", None)
        if isinstance(size, tuple):
            return int(size[-1])
    return int(metadata["input_size"][-1])


def _of_open_clip(settings: Options) -> Preprocessing:
    """The preprocessing of evaluated images by open_clip's ``preprocess_cfg``, an attribute of the image tower."""
    size = settings["size"]
    if not isinstance(size, int):
        size = size[-1]
    filter_name = settings["interpolation"].upper()
    return Preprocessing(
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        image_size=size,
        crop_fraction=1.0,
        val_resizing=OPEN_CLIP_RESIZINGS.get(settings["resize_mode"]),
        resample=Image.Resampling[filter_name],
    )


def _of_transformers(model: Any) -> Preprocessing | None:
    """The preprocessing of the processor in the model's folder or the hub's cache, else by its kind's defaults."""
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(
            model.config._name_or_path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):
        return _of_the_kind_of(model)
    with suppress(UserError):
        return preprocessing_of_processor(processor)
    return None


def _of_the_kind_of(model: Any) -> Preprocessing | None:
    """The preprocessing of the default processor for models of transformers of this kind."""
    from transformers import IMAGE_PROCESSOR_MAPPING

    vision_config = getattr(model.config, "vision_config", model.config)
    size = getattr(vision_config, "image_size", None)
    processors_by_backend = IMAGE_PROCESSOR_MAPPING.get(type(model.config), {})
    for processor_class in processors_by_backend.values():
        with suppress(UserError):
            default = preprocessing_of_processor(processor_class())
            side = size if isinstance(size, int) else default.image_size
            assumption = (
                f"no processor of this {type(model).__name__} is on this machine; assumed: "
                f"{processor_class.__name__}'s defaults at {side} pixels (mean {default.mean}, std {default.std}); "
                f"else pass {named('image_size')}, {named('norm_mean')} and {named('norm_std')}, or in Python "
                f"evaluation_transform=processor"
            )
            return replace(default, image_size=side, assumed=assumption)
    return None
