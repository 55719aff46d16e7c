"""The images that a network takes: their preprocessing, as its library declares it, their channels and their size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from PIL import Image
from torch import nn

from tllib_ancon.config.settings import as_tuple
from tllib_ancon.data.transforms import IMAGENET_MEAN, IMAGENET_STD, KEEP_RATIO, Preprocessing
from tllib_ancon.runtime.errors import BadModel, named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.types import Record

USUAL_SIDE = 224
USUAL_CROP = 0.875

OPEN_CLIP_RESIZINGS = {"shortest": KEEP_RATIO, "squash": "default"}


def preprocessing_of(network: nn.Module) -> Preprocessing | None:
    """The preprocessing that a network declares itself; None if it declares none, as a module around another.

    Declared by its attribute ``preprocessing``, else by the library of its forward: metadata of timm and open_clip, the
    processor of transformers, torchvision's convention. Each call derives it again: callers keep the result.
    """
    declared = getattr(network, "preprocessing", None)
    if isinstance(declared, Preprocessing):
        return declared
    library = str(network.forward.__module__).partition(".")[0]
    if library not in _DECLARED_BY:
        return None
    return _DECLARED_BY[library](network)


@dataclass(frozen=True)
class ProcessorTransform:
    """Image -> tensor (C, H, W) by an image processor of transformers."""

    processor: Any

    def __call__(self, image: Any) -> Any:
        return self.processor(image, return_tensors="pt")["pixel_values"][0]


def preprocessing_by_transform(transform: Any) -> Preprocessing:
    """The preprocessing that a transform does as a whole: an image processor of transformers, a processor that has one,
    or any function."""
    processor = getattr(transform, "image_processor", transform)
    if not hasattr(processor, "image_mean"):
        return Preprocessing((), (), transform=transform, origin="your transform")
    origin = f"the image processor {type(processor).__name__}"
    return Preprocessing((), (), transform=ProcessorTransform(processor), origin=origin)


def preprocessing_record(preprocessing: Preprocessing | None) -> Record | None:
    """What a run records of a preprocessing; None where a transform of the caller does it."""
    if preprocessing is None:
        return None
    record = asdict(replace(preprocessing, transform=None, train_transform=None))
    if isinstance(preprocessing.transform, ProcessorTransform):
        record["processor"] = json.loads(preprocessing.transform.processor.to_json_string())
    elif preprocessing.transform is not None:
        return None
    return record


def recorded_preprocessing(record: Record | None) -> Preprocessing | None:
    """The preprocessing of a run's record; None where a transform of the caller stood for it."""
    if record is None:
        return None
    preprocessing = Preprocessing(**{name: as_tuple(value) for name, value in record.items() if name != "processor"})
    settings = record.get("processor")
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
    return replace(preprocessing, transform=ProcessorTransform(processor_class.from_dict(settings)))


def _of_timm(network: Any) -> Preprocessing | None:
    metadata = getattr(network, "pretrained_cfg", None)
    if not metadata:
        return None
    side = int(metadata["input_size"][-1])
    for module in network.modules():
        size = getattr(module, "img_size", None)  # that the network was built for, of its patch embedding
        if isinstance(size, tuple):
            side = int(size[-1])
            break
    crop_fraction = metadata.get("crop_pct") or USUAL_CROP
    return Preprocessing(tuple(metadata["mean"]), tuple(metadata["std"]), side, crop_fraction, origin="timm's metadata")


def _of_torchvision(network: Any) -> Preprocessing:
    side = getattr(network, "image_size", USUAL_SIDE)
    return Preprocessing(IMAGENET_MEAN, IMAGENET_STD, side, origin="torchvision's ImageNet weights")


def _of_open_clip(network: Any) -> Preprocessing | None:
    """That of evaluated images by open_clip's ``preprocess_cfg``, an attribute of the image tower."""
    settings = getattr(network, "preprocess_cfg", None)
    if not settings:
        return None
    size = settings["size"]
    if not isinstance(size, int):
        size = size[-1]
    return Preprocessing(
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        image_size=size,
        crop_fraction=1.0,
        val_resizing=OPEN_CLIP_RESIZINGS.get(settings["resize_mode"]),
        resample=Image.Resampling[settings["interpolation"].upper()],
        origin="open_clip's metadata",
    )


def _of_transformers(network: Any) -> Preprocessing | None:
    """That of the processor in the model's folder or the hub's cache; None where it has none."""
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(
            network.name_or_path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):
        return None
    return preprocessing_by_transform(processor)


_DECLARED_BY: dict[str, Callable[[Any], Preprocessing | None]] = {
    "timm": _of_timm,
    "torchvision": _of_torchvision,
    "open_clip": _of_open_clip,
    "transformers": _of_transformers,
    "peft": lambda network: preprocessing_of(network.get_base_model()),
}
"""Library of a network's forward -> what the network declares."""
