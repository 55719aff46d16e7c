"""Domains of Python objects: arrays, tensors, mappings of arrays, and map-style datasets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from tllib_ancon.data.domain import Domain, numbered
from tllib_ancon.data.images import Items
from tllib_ancon.data.labels import checked_labels
from tllib_ancon.data.tensors import on_cpu, rows_of


def domain_of_object(data: Any, name: str, classes: Sequence[str] | None = None) -> Domain:
    """The rows of arrays, or the items of a dataset, without labels."""
    on_host = on_cpu(data)
    images = rows_of(on_host, name) or Items(on_host, name)
    return Domain(name, images, list(classes or ()))


def with_labels(domain: Domain, labels: ArrayLike) -> Domain:
    """The domain with these labels, which are numbers of a model's outputs."""
    numbers = checked_labels(f"domain {domain.name}: labels", labels, len(domain))
    return replace(domain, classes=numbered(int(numbers.max(initial=0)) + 1), labels=numbers)
