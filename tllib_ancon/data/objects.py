"""Domains of Python objects: arrays, tensors, mappings of arrays, and map-style datasets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.images import Items
from tllib_ancon.data.labels import as_numbers
from tllib_ancon.data.tensors import on_cpu, rows_of
from tllib_ancon.runtime.errors import BadImages


def domain_of_object(data: Any, name: str, classes: Sequence[str] | None = None) -> Domain:
    """The rows of arrays, or the items of a dataset, without labels."""
    on_host = on_cpu(data)
    images = rows_of(on_host, name) or Items(on_host, name)
    return Domain(name, images, list(classes or ()))


def with_labels(domain: Domain, labels: ArrayLike, classes: Sequence[str] | None = None) -> Domain:
    """The domain with these labels. Classes without names are named by numbers."""
    title = f"domain {domain.name}: labels"
    names = list(classes or domain.classes)
    numbers = as_numbers(title, on_cpu(labels), names)
    if not names:
        if numbers.dtype.kind not in "iu":
            raise BadImages(
                f"{title} are {numbers.dtype} of shape {numbers.shape}",
                f"pass a whole number from 0 for each of {len(domain):,} images",
            )
        names = numbered(int(numbers.max(initial=0)) + 1)
    return replace(domain, classes=names, labels=numbers)
