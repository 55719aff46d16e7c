"""The images that the caller passes or the settings name, opened as a domain and cached."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data import cache
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layouts import missing_dataset
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import ImageTransform
from tllib_ancon.opening.defaults import Facts, resolve
from tllib_ancon.opening.source import Source
from tllib_ancon.opening.transforms import StageConfig, TransformRule, Transforms
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.importing import function_named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Options

Config = TypeVar("Config", bound=StageConfig)


@dataclass(frozen=True)
class PreparedImages(Generic[Config]):
    """Images, and how they become what a network gets.

    Attributes:
        config: the settings, with every default filled in
        layers: setting -> the layer that decided it
        notes: what was decided
        domain: the images, decoded and cached as the settings define
        transform_rule: what decides how they become tensors
        transforms: how they become tensors
    """

    config: Config
    layers: Mapping[str, str]
    notes: list[Note]
    domain: ImageSource
    transform_rule: TransformRule
    transforms: Transforms


def prepare(
    requested: Config,
    source: Source,
    network: nn.Module,
    images: ImageSource,
    transform_rule: TransformRule,
    recorded_settings: Options = MappingProxyType({}),
) -> PreparedImages[Config]:
    """Fill in every setting, and prepare images for a network.

    Args:
        requested: settings of the user
        source: the trained model
        network: its network
        images: as they were opened
        transform_rule: what decides how they become tensors
        recorded_settings: ``config.json`` of the run that continues
    """
    config, layers, notes = resolve(requested, Facts(source, network, images, transform_rule, recorded_settings))
    transforms = transform_rule.transforms_of(config, network, images)
    domain = with_cache(config, images, transforms, notes)
    return PreparedImages(config, layers, notes, domain, transform_rule, transforms)


def chosen_loader(config: StageConfig | CertifyConfig, loader: Loader | None) -> Loader | None:
    """The function that reads image files: the caller's, else what the settings name; None for Pillow."""
    chosen: Any = loader
    if chosen is None and config.loader is not None:
        chosen = function_named("loader", config.loader)
    if chosen is not None and not callable(chosen):
        raise BadSetting(f"{named('loader')} is {chosen!r:.80}", "pass a function of a path", setting="loader")
    return cast("Loader | None", chosen)


def require_loader_of(recorded_settings: Options, images: ImageSource) -> None:
    """Raise an error for files that Pillow reads and that the run of these settings read by a loader of the user."""
    recorded = recorded_settings.get("inputs", {}).get("loader")
    if recorded and images.paths is not None and not images.reader.loader:
        raise BadSetting(
            f"the model's run read its images by the function {recorded}, which no run calls by itself",
            f"pass it as {named('loader')}",
            setting="loader",
        )


def find_target(
    config: AdaptConfig | PredictConfig,
    source: Source,
    images: Any,
    labels: Any,
    user_transforms: TransformRule,
    loader: Loader | None = None,
) -> ImageSource:
    """The images that the caller passes or that the settings name, checked against the model's run."""
    target = find_images(config, images, labels, source.classes, loader)
    require_loader_of(source.recorded_settings, target)
    user_transforms.refuse_unread_settings(config, target)
    return target


def find_images(
    config: AdaptConfig | PredictConfig,
    images: Any,
    labels: Any,
    classes: Sequence[str] | None,
    loader: Loader | None = None,
) -> ImageSource:
    """The images that the caller passes, or that the settings name. ``labels`` False reads none."""
    if images is None and labels is not None and not isinstance(labels, bool):
        raise BadSetting(f"{named('labels')} belong to {named('images')}", "pass both, or neither", setting="labels")
    if images is None or isinstance(images, str | os.PathLike):
        if images is None:
            naming = config
        else:
            naming = config.replace(root=str(images))
        split = "train" if isinstance(config, AdaptConfig) else "test"
        opened = open_by_settings(naming, config.target, split, classes, labels, loader)
    else:
        opened = as_domain(images, labels=labels, classes=classes, loader=chosen_loader(config, loader))
    if labels is False:
        return opened.without_labels()
    return opened


def open_by_settings(
    config: StageConfig,
    codes: Sequence[str],
    split: str = "train",
    classes: Sequence[str] | None = None,
    labels: Any = None,
    loader: Loader | None = None,
) -> ImageSource:
    """The domain of these codes, or without codes what ``root`` names. ``classes``: names of the model's classes."""
    if config.root is None:
        raise BadSetting(f"{named('root')} is needed", "pass the folder of the dataset", setting="root")
    if config.data is None and codes:
        raise missing_dataset(config.root)
    how: Options = {
        "classes": classes,
        "skip_corrupt": config.skip_corrupt,
        "workers": config.workers,
        "loader": chosen_loader(config, loader),
    }
    if config.data is None:
        return as_domain(config.root, labels=labels, **how)
    return open_domain(config.root, config.data, codes, split, allow_download=config.allow_download, **how)


def notes_of(images: ImageSource) -> list[Note]:
    """What was decided when images were opened."""
    notes = []
    if images.skipped:
        count = len(images) + len(images.skipped)
        text = f"{len(images.skipped)} of the {count} images of domain {images.name} are left out"
        notes.append(Note("skipped-images", text, "skip_corrupt", level="warning"))
        notes += [Note("skipped-image", f"  {reason}", "skip_corrupt") for reason in images.skipped]
    return notes


def with_cache(config: StageConfig, images: ImageSource, transforms: Transforms, notes: list[Note]) -> ImageSource:
    """The images, of which what training or prediction reads again is cached."""

    def show(text: str) -> None:
        notes.append(Note("cache", text, "cache"))

    pair = transforms.train, transforms.evaluation
    resizings = [transform.resizing for transform in pair if isinstance(transform, ImageTransform)]
    if config.cache is not None:
        return cache.cached(images, config.cache, resizings)
    if isinstance(config, PredictConfig):
        return images
    room = devices.free_memory() // 4
    return cache.cached_in_memory(images, resizings, room, show)
