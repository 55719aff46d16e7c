"""Facts about images, their classes, and how they become what a network gets."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from tllib_ancon.data.domain import numbered
from tllib_ancon.data.pixels import usual_bands
from tllib_ancon.data.tensors import Mapped
from tllib_ancon.data.transforms import KEEP_RATIO, Preprocessing
from tllib_ancon.models.outputs import takes_pixel_values
from tllib_ancon.training.class_names import ModelClasses
from tllib_ancon.training.facts import FINE, LOOK, WRONG, Fact, counted, first_names
from tllib_ancon.training.resolve import Transforms
from tllib_ancon.training.subject import Subject

DARK = 64
"""Pixel value of 255; a sample without any as large is marked as dark."""

PREPARING = ("image_size", "crop_fraction", "val_resizing", "norm_mean", "norm_std")
"""Settings of the preprocessing of evaluated images."""


def images(subject: Subject) -> Fact:
    """Number and source of the images."""
    target = subject.target
    parts = [f"{counted(len(target), 'image')} of {target.name}"]
    if target.paths:
        parts.append(f"the first is {target.paths[0]}")
    if target.ignored:
        parts.append(target.ignored)
    if target.skipped:
        parts.append(f"{len(target.skipped)} cannot be read and are left out")
    if subject.labelled:
        parts.append("their labels are used only to report the accuracy")
    values = {"number": len(target), "labelled": subject.labelled, "skipped": len(target.skipped)}
    return Fact("; ".join(parts), values, ("data", "target"))


def class_names(subject: Subject) -> list[str]:
    """Names of the model's classes, else of the images', else numbers."""
    if subject.classifier is None:
        return []
    number = subject.classifier.num_classes
    names = ModelClasses.of(subject.network, number, subject.start).usable_names or list(subject.target.classes)
    if len(names) == number:
        return names
    return numbered(number)


def classes(subject: Subject) -> Fact:
    """Number and order of the model's classes, beside the names of the model and of the folder."""
    settings = ("class_names",)
    if subject.classifier is None:
        return Fact("not known: the model returns no logits", settings=settings, mark=LOOK)
    number = subject.classifier.num_classes
    known = ModelClasses.of(subject.network, number, subject.start)
    of_model = list(subject.start.classes or known.usable_names)
    of_images = list(subject.target.classes)
    if not subject.labelled or of_images == numbered(len(of_images)):
        of_images = []
    values = {"number": number, "model": of_model, "images": of_images}
    parts = [counted(number, "class", "classes")]
    if of_model:
        parts.append(f"the model's names in order: {first_names(of_model)}")
    else:
        parts.append("the model has no names for them")
    if of_images:
        parts.append(f"those of the images in order: {first_names(of_images)}")
    problem = _class_mismatch(number, of_model, of_images)
    if problem:
        return Fact("; ".join([*parts, problem]), values, settings, WRONG)
    if subject.folder_lines:
        return Fact("; ".join([*parts, *subject.folder_lines]), values, settings, LOOK)
    if of_images and not of_model:
        parts.append("compare the order with the model's training")
        return Fact("; ".join(parts), values, settings, LOOK)
    return Fact("; ".join(parts), values, settings)


def _class_mismatch(number: int, of_model: Sequence[str], of_images: Sequence[str]) -> str:
    """How classes contradict each other; empty if they do not."""
    if of_model and len(of_model) != number:
        return f"{len(of_model)} names for {number} outputs"
    if not of_images:
        return ""
    if len(of_images) != number:
        return f"the images have {counted(len(of_images), 'class', 'classes')}"
    if not set(of_images) & set(of_model):
        return ""
    differing = [label for label, name in enumerate(of_model) if name != of_images[label]]
    if not differing:
        return ""
    label = differing[0]
    return f"class {label} is {of_model[label]} of the model and {of_images[label]} of the images"


def pixels(subject: Subject) -> Fact:
    """Size and range of decoded images."""
    if subject.target.holds_tensors:
        return _tensors(subject)
    arrays = [np.asarray(image) for image in subject.decoded]
    least = min(int(array.min()) for array in arrays)
    most = max(int(array.max()) for array in arrays)
    mean = float(np.mean([array.mean() for array in arrays]))
    sizes = Counter((array.shape[1], array.shape[0]) for array in arrays)
    text = f"{_sizes(sizes)}; decoded values {least} to {most} of 255, mean {mean:.0f} ({len(arrays)} images)"
    values = {"least": least, "most": most, "mean": mean, "sizes": [list(size) for size in sizes]}
    deep = _deep_pixels(subject)
    if deep is not None:
        return dataclasses.replace(deep, text=f"{text}; {deep.text}", values={**values, **deep.values})
    if least == most:
        return Fact(f"{text}; all pixels are equal", values, mark=WRONG)
    if most < DARK:
        return Fact(f"{text}; the images are nearly black", values, mark=LOOK)
    return Fact(text, values)


def _deep_pixels(subject: Subject) -> Fact | None:
    """Range of pixels of more than 8 bits, and which become black and white; None for other images."""
    found, limits = subject.target.pixel_values(), subject.config.pixel_range
    if not found.deep or limits is None:
        return None
    text = (
        f"the files hold {found.least:g} to {found.most:g} in {found.deep} of {found.images} images, of which "
        f"{limits[0]:g} becomes black and {limits[1]:g} white"
    )
    values = {"file_least": found.least, "file_most": found.most, "pixel_range": list(limits)}
    if subject.given.pixel_range is None:
        return Fact(text, values, ("pixel_range",), LOOK)
    return Fact(text, values, ("pixel_range",))


def _tensors(subject: Subject) -> Fact:
    """Shape and range of the tensors that a model gets unchanged."""
    rows = torch.stack([torch.as_tensor(image) for image in subject.decoded])
    if isinstance(subject.target.images, Mapped):
        arrays = subject.target.images.layout.unpack(rows)
        listed = ", ".join(f"{name} {tuple(array.shape[1:])}" for name, array in arrays.items())
        return Fact(f"arrays by name: {listed}", {name: list(array.shape[1:]) for name, array in arrays.items()})
    tensors = rows.float()
    least, most, shape = float(tensors.min()), float(tensors.max()), list(tensors.shape[1:])
    text = f"tensors of shape {tuple(shape)}, values {least:.4g} to {most:.4g} ({len(tensors)} tensors)"
    return Fact(text, {"least": least, "most": most, "shape": shape}, ("evaluation_transform",))


def _sizes(sizes: Mapping[tuple[int, int], int]) -> str:
    ordered = sorted(sizes, key=lambda size: size[0] * size[1])
    smallest, largest = (f"{width} × {height}" for width, height in (ordered[0], ordered[-1]))
    if len(ordered) == 1:
        return f"{smallest} pixels"
    return f"{smallest} to {largest} pixels"


def channels(subject: Subject) -> Fact:
    """Channels of the images and of the network's input."""
    shape = tuple(subject.probe.shape[1:])
    if isinstance(subject.target.images, Mapped):
        return Fact("the network gets the arrays by name")
    if subject.target.holds_tensors:
        return Fact(f"the network gets tensors of shape {shape}", {"network": shape[0]})
    text = f"the network gets {shape[0]}"
    if shape[0] == 1:
        text += " (grey)"
    elif shape[0] == 3:
        text += " (RGB)"
    kinds = _kinds_of_files(subject)
    if kinds:
        listed = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
        text = f"files of {listed}; {text}"
    values = {"network": shape[0], "files": dict(kinds)}
    bands = subject.target.pixel_values().bands
    if bands:
        used = ", ".join(map(str, subject.config.bands or usual_bands(bands)))
        return Fact(f"{text}; bands {used} are used", values, ("bands", "norm_mean", "norm_std"), LOOK)
    return Fact(text, values, ("norm_mean", "norm_std"))


def _kinds_of_files(subject: Subject) -> Counter[str]:
    """Pillow's mode of files, such as RGB, L for grey or RGBA, or the type of deep pixels."""
    sample, kinds = subject.sample, Counter[str]()
    for position in sample.positions[: len(subject.decoded)].tolist():
        samples = sample.images.samples(position)
        if samples is None:
            continue
        kind = str(getattr(samples.image, "mode", ""))
        if samples.values is not None:
            kind = str(samples.values.dtype)
        if samples.bands:
            kind += f" of {samples.bands} bands"
        kinds[kind] += 1
    return kinds


def preprocessing(subject: Subject) -> Fact:
    """Resizing, crop and normalisation, and where they come from."""
    source, mark = _source_of_preprocessing(subject)
    known = subject.transforms.preprocessing
    if isinstance(subject.passed, Transforms) or subject.target.holds_tensors or known is None:
        return Fact(source, {"source": source}, ("evaluation_transform",), mark)
    values = {"source": source, **dataclasses.asdict(known)}
    return Fact(f"{_in_words(known)}; from {source}", values, (*PREPARING, "evaluation_transform"), mark)


def _in_words(known: Preprocessing) -> str:
    side, size = known.resizing(known.val_resizing).side, known.image_size
    mean, std = (" ".join(f"{value:.3g}" for value in values) for values in (known.mean, known.std))
    normalisation = f"mean {mean}, std {std}"
    if known.val_resizing == "res.":
        return f"resized to {side} × {side}, {normalisation}"
    if known.val_resizing == KEEP_RATIO:
        return f"shorter side resized to {side}, crop {size} × {size}, {normalisation}"
    return f"resized to {side} × {side}, crop {size} × {size}, {normalisation}"


def _source_of_preprocessing(subject: Subject) -> tuple[str, str]:
    """Where the preprocessing comes from, and a mark."""
    if isinstance(subject.passed, Transforms):
        return "your transforms", FINE
    if subject.target.holds_tensors:
        return "none: the model gets the tensors unchanged", FINE
    by_user = [name for name in PREPARING if getattr(subject.given, name) is not None]
    source, mark = _source_without_user(subject)
    if by_user:
        source = f"your settings ({', '.join(f'`{name}`' for name in by_user)}), the rest from {source}"
    if {"norm_mean", "norm_std"} <= {*by_user}:
        mark = FINE
    return source, mark


def _source_without_user(subject: Subject) -> tuple[str, str]:
    if isinstance(subject.passed, Preprocessing):
        return "the image processor that you pass", FINE
    if subject.start.run is not None:
        return f"the record of the run {subject.start.run}", FINE
    known: Any = subject.transforms.preprocessing
    if known is not None and known.assumed:
        return "the defaults of the model's kind of image processor: its own is not on this machine", LOOK
    library = _library_of(subject.network)
    if library:
        return library, FINE
    return "the defaults of the settings: nothing describes this network's training", LOOK


def _library_of(network: nn.Module) -> str:
    """The library whose metadata describe the preprocessing of a network, or of a part of it."""
    for part in network.modules():
        if getattr(part, "pretrained_cfg", None):
            return "timm's metadata"
        if getattr(part, "preprocess_cfg", None):
            return "open_clip's metadata"
        if takes_pixel_values(part):
            return "the image processor of transformers"
        if type(part).__module__.startswith("torchvision.models."):
            return "torchvision's ImageNet weights"
    return ""
