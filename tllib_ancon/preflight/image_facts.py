"""Facts about images, their classes, and how they become what a network gets."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tllib_ancon.data.image_source import numbered
from tllib_ancon.data.transforms import KEEP_RATIO, Preprocessing
from tllib_ancon.preflight.case import Case
from tllib_ancon.preflight.fact import FEW_NAMES, LOOK, WRONG, Fact
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.text import counted

ON_CLASSES = ("no-labels", "labels-by-number", "labels-from-one")
"""Codes of the notes on the classes of images."""

DARK = 64
"""Pixel value of 255; a sample without any as large is marked as dark."""

PREPARING = ("image_size", "crop_fraction", "val_resizing", "norm_mean", "norm_std")
"""Settings of the preprocessing of evaluated images."""


COLOURS = {1: " (grey)", 3: " (RGB)"}
"""Meaning of a number of channels."""


def target_images(case: Case) -> Fact:
    """Number and source of the images."""
    target = case.opened.images
    parts = [f"{counted(len(target), 'image')} of {target.name}"]
    if target.paths:
        parts.append(f"the first is {target.paths[0]}")
    if target.skipped:
        parts.append(f"{len(target.skipped)} cannot be read and are left out")
    if case.opened.images.labels is not None:
        parts.append("their labels are used only to report the accuracy")
    values = {"number": len(target), "labelled": case.opened.images.labels is not None, "skipped": len(target.skipped)}
    return Fact("; ".join(parts), values, ("data", "target"))


def classes(case: Case) -> Fact:
    """Number and order of the model's classes, beside the names of the model and of the folder."""
    settings = ("class_names",)
    number = case.opened.classes.num_classes
    model_names = case.opened.classes.distinct_names if case.opened.classes.are_named else []
    image_names = _names_of_labels(case)
    values = {"number": number, "model": model_names, "images": image_names}
    parts = [counted(number, "class", "classes")]
    if model_names:
        parts.append(f"the model's names in order: {_first_names(model_names)}")
    else:
        parts.append("the model has no names for them")
    if image_names:
        parts.append(f"those of the images in order: {_first_names(image_names)}")
    notes = [str(note) for note in case.opened.notes if note.code in ON_CLASSES]
    parts += notes
    if image_names and not model_names:
        parts.append("compare the order with the model's training")
    if notes or (image_names and not model_names):
        return Fact("; ".join(parts), values, settings, LOOK)
    return Fact("; ".join(parts), values, settings)


def _names_of_labels(case: Case) -> list[str]:
    """Names of the classes of the images' labels; none if the images have no labels or only numbers."""
    names = list(case.opened.images.classes)
    if case.opened.images.labels is None or names == numbered(len(names)):
        return []
    return names


def pixels(case: Case) -> Fact:
    """Size and range of decoded images."""
    if case.opened.images.is_raw:
        return _tensors(case)
    arrays = [np.asarray(image) for image in case.decoded]
    least = min(int(array.min()) for array in arrays)
    most = max(int(array.max()) for array in arrays)
    mean = float(np.mean([array.mean() for array in arrays]))
    sizes = Counter((array.shape[1], array.shape[0]) for array in arrays)
    text = f"{_sizes(sizes)}; decoded values {least} to {most} of 255, mean {mean:.0f} ({len(arrays)} images)"
    values = {"least": least, "most": most, "mean": mean, "sizes": [list(size) for size in sizes]}
    if least == most:
        return Fact(f"{text}; all pixels are equal", values, mark=WRONG)
    if most < DARK:
        return Fact(f"{text}; the images are nearly black", values, mark=LOOK)
    return Fact(text, values)


def _tensors(case: Case) -> Fact:
    """Shape and range of the tensors that a model gets unchanged."""
    tensors = torch.stack([torch.as_tensor(image) for image in case.decoded]).float()
    least = float(tensors.min())
    most = float(tensors.max())
    shape = list(tensors.shape[1:])
    text = f"tensors of shape {tuple(shape)}, values {least:.4g} to {most:.4g} ({len(tensors)} tensors)"
    return Fact(text, {"least": least, "most": most, "shape": shape}, ("evaluation_transform",))


def _sizes(sizes: Mapping[tuple[int, int], int]) -> str:
    ordered = sorted(sizes, key=lambda size: size[0] * size[1])
    smallest = "{} × {}".format(*ordered[0])
    if len(ordered) == 1:
        return f"{smallest} pixels"
    largest = "{} × {}".format(*ordered[-1])
    return f"{smallest} to {largest} pixels"


def channels(case: Case) -> Fact:
    """Channels of the images and of the network's input."""
    inputs: Any = case.opened.probe
    shape = tuple(inputs.shape[1:])
    num_channels = shape[0]
    if case.opened.images.is_raw:
        return Fact(f"the network gets tensors of shape {shape}", {"network": num_channels})
    text = f"the network gets {num_channels}{COLOURS.get(num_channels, '')}"
    return Fact(text, {"network": num_channels}, ("norm_mean", "norm_std"))


def preprocessing(case: Case) -> Fact:
    """Resizing, crop and normalisation, and where they come from."""
    source = _source_of_preprocessing(case)
    chosen = case.opened.transforms.preprocessing
    if case.opened.transform_rule.are_fixed_for(case.opened.images) or chosen is None:
        return Fact(source, {"source": source}, ("evaluation_transform",))
    values = {"source": source, **dataclasses.asdict(chosen)}
    settings = (*PREPARING, "evaluation_transform")
    normalisation = f"mean {_three_digits(chosen.mean)}, std {_three_digits(chosen.std)}"
    return Fact(f"{_resizing_in_words(chosen)}, {normalisation}; from {source}", values, settings)


def _resizing_in_words(chosen: Preprocessing) -> str:
    side = chosen.resizing(chosen.val_resizing).side
    size = chosen.image_size
    if chosen.val_resizing == "res.":
        return f"resized to {side} × {side}"
    if chosen.val_resizing == KEEP_RATIO:
        return f"shorter side resized to {side}, crop {size} × {size}"
    return f"resized to {side} × {side}, crop {size} × {size}"


def _three_digits(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3g}" for value in values)


def _source_of_preprocessing(case: Case) -> str:
    """Where the preprocessing comes from."""
    chosen = case.opened.transforms.preprocessing
    if case.opened.transform_rule.evaluation is not None:
        return "your transforms"
    if case.opened.images.is_raw:
        return "none: the model gets the tensors unchanged"
    if chosen is not None and chosen.processor is not None:
        return f"the image processor {type(chosen.processor).__name__}"
    source = _source_without_settings(case)
    settings = [name for name in PREPARING if getattr(case.opened.requested, name) is not None]
    if not settings:
        return source
    listed = ", ".join(f"{named(name)}" for name in settings)
    return f"your settings ({listed}), the rest from {source}"


def _source_without_settings(case: Case) -> str:
    """Where the preprocessing comes from that no setting of the user decides."""
    if case.opened.source.run is not None:
        return f"the record of the run {case.opened.source.run}"
    preprocessing = case.opened.transform_rule.preprocessing
    return (preprocessing and preprocessing.origin) or "the defaults of the settings"


def _first_names(names: Sequence[str]) -> str:
    """The first names, and how many there are."""
    if len(names) <= FEW_NAMES:
        return ", ".join(names)
    first_names = ", ".join(names[: FEW_NAMES - 1])
    return f"{first_names}, ... {names[-1]} ({len(names)})"
