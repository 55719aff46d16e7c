"""The images that a network takes: their preprocessing, as its library declares it, their channels and their size."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from tllib_ancon.config.settings import as_tuple
from tllib_ancon.data.transforms import IMAGENET_MEAN, IMAGENET_STD, KEEP_RATIO, Preprocessing
from tllib_ancon.runtime.errors import BadModel, named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.types import Options, Record

USUAL_SIDE = 224
USUAL_CROP = 0.875

FOLDED = 16
"""Channels from which a first convolution takes blocks of pixels rather than images."""

LIBRARIES = ("timm", "transformers", "open_clip", "peft")
"""Packages whose models have metadata about the images that they take."""

OPEN_CLIP_RESIZINGS = {"shortest": KEEP_RATIO, "squash": "default"}


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
    channels = channels_of(network) or len(declared.mean) or 3
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


@dataclass(frozen=True)
class ProcessorTransform:
    """Image -> tensor (C, H, W) by an image processor of transformers."""

    processor: Any

    def __call__(self, image: Any) -> Any:
        return self.processor(image, return_tensors="pt")["pixel_values"][0]


def is_processor(transform: object) -> bool:
    """Whether it is an image processor of transformers, or a processor that has one."""
    return hasattr(transform, "image_mean") or hasattr(transform, "image_processor")


def preprocessing_of_processor(processor: Any) -> Preprocessing:
    """The preprocessing that an image processor of transformers does as a whole."""
    return Preprocessing((), (), processor=getattr(processor, "image_processor", processor))


def preprocessing_record(preprocessing: Preprocessing) -> Record:
    """What a run records of a preprocessing."""
    record = asdict(replace(preprocessing, processor=None))
    if preprocessing.processor is not None:
        record["processor"] = json.loads(preprocessing.processor.to_json_string())
    return record


def recorded_preprocessing(record: Record | None) -> Preprocessing | None:
    """The preprocessing of a run's record; None where a transform of the caller stood for it."""
    if record is None:
        return None
    preprocessing = Preprocessing(**{name: as_tuple(value) for name, value in record.items() if name != "processor"})
    settings = record["processor"]
    if settings is None:
        return preprocessing
    require("the image processor of this run", "transformers", extra="foundation")
    import transformers

    name = settings["image_processor_type"]
    processor_class: Any = getattr(transformers, name, None)
    is_class = isinstance(processor_class, type)
    if not (is_class and issubclass(processor_class, transformers.ImageProcessingMixin)):
        raise BadModel(
            f"transformers {transformers.__version__} has no image processor {name}",
            f"pass {named('evaluation_transform')}",
            setting="evaluation_transform",
        )
    return replace(preprocessing, processor=processor_class.from_dict(settings))


def _computes_as_its_library(network: nn.Module) -> bool:
    """Whether its forward is that of a library, and no other of a subclass or of the object."""
    return str(network.forward.__module__).partition(".")[0] in LIBRARIES


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
    if getattr(part, "main_input_name", None) == "pixel_values":
        return _of_transformers(part)
    return None


def _of_timm(network: nn.Module, metadata: Options) -> Preprocessing:
    mean = tuple(metadata["mean"])
    std = tuple(metadata["std"])
    crop_fraction = metadata.get("crop_pct") or USUAL_CROP
    if channels_of(network) == 1 and len(mean) == 3:  # the metadata are of the weights for RGB
        mean = ()
        std = ()
    return Preprocessing(mean, std, _side_of_timm(network, metadata), crop_fraction)


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
    """The preprocessing of the processor in the model's folder or the hub's cache; None where it has none."""
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(
            model.config._name_or_path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):
        return None
    return preprocessing_of_processor(processor)
