"""A model and images, opened as ``adapt`` would open them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.opening.open import Opened
from tllib_ancon.training.first_pass import FirstPass, sample_of

DECODED = 32
"""Images at most of the sample whose pixels are looked at."""


@dataclass(frozen=True)
class Case:
    """A model and images as ``adapt`` opens them, and its first pass over them."""

    opened: Opened[Any]
    predicted: FirstPass

    @cached_property
    def sample(self) -> ImageSource:
        """The images that the model predicts."""
        return sample_of(self.opened.images, self.opened.settings.seed)

    @cached_property
    def decoded(self) -> list[Any]:
        """Some images of the sample, before their transform."""
        return [self.sample.image(index) for index in range(min(DECODED, len(self.sample)))]

    @property
    def class_names(self) -> list[str]:
        """Names of the model's classes, else of the images', else numbers."""
        classes = self.opened.classes
        names_of_images = self.opened.images.classes
        if not classes.are_named and len(names_of_images) == classes.num_classes:
            return list(names_of_images)
        return classes.distinct_names
