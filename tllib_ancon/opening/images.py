"""The images that the caller passes or the settings name, opened as a domain and cached."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data import cache
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.layout import LAYOUTS
from tllib_ancon.data.open import as_domain, open_domain
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import ImageTransform
from tllib_ancon.opening.transforms import StageConfig, Transforms
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.importing import function_named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Options


def open_by_settings(
    config: StageConfig,
    codes: Sequence[str],
    images: Any = None,
    labels: Any = None,
    classes: Sequence[str] | None = None,
    loader: Loader | None = None,
) -> ImageSource:
    """The images that the caller passes, or the domains of these codes, or without codes what ``root`` names.

    Args:
        labels: as for :func:`tllib_ancon.adapt`; False reads none
        classes: names of the model's classes
    """
    if loader is None and config.loader is not None:
        loader = cast("Loader", function_named("loader", config.loader))
    place = config.root if images is None else images
    if place is None:
        raise BadSetting(f"{named('root')} is needed", "pass the folder of the dataset", setting="root")
    how: Options = {"skip_corrupt": config.skip_corrupt, "workers": config.workers, "loader": loader}
    if not isinstance(place, str | os.PathLike) or not (config.data or codes):
        return as_domain(place, labels=labels, **how)
    if config.data is None:
        names = ", ".join(LAYOUTS)
        raise BadSetting(f"{named('data')} is missing: which dataset lies in {place}? Names: {names}", setting="data")
    split = "train"
    if isinstance(config, PredictConfig):
        split = "test"
    return open_domain(place, config.data, codes, split, labels=labels, classes=classes, **how)


def with_cache(config: StageConfig, images: ImageSource, transforms: Transforms, notes: list[Note]) -> ImageSource:
    """The images, with a cache where training or prediction reads them again."""
    pair = transforms.train, transforms.evaluation
    resizings = [transform.resizing for transform in pair if isinstance(transform, ImageTransform)]
    if images.reader.is_in_memory or not resizings:
        return images
    if config.cache is not None:
        return cache.cached(images, config.cache, resizings)
    if isinstance(config, PredictConfig):
        return images
    return cache.cached_in_memory(images, resizings, devices.free_memory() // 4, notes)
