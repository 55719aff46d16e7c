"""Classifiers with features and a head: :func:`load` from a checkpoint, :func:`as_classifier` of any network.

Importing this package does not import torch; using one of its names does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tllib_ancon.models.any_network import as_classifier as as_classifier
    from tllib_ancon.models.classifier import Classifier as Classifier
    from tllib_ancon.models.loading import export_state_dict as export_state_dict
    from tllib_ancon.models.loading import load as load

_HOMES = {"as_classifier": "any_network", "Classifier": "classifier", "export_state_dict": "loading", "load": "loading"}

__all__ = ["Classifier", "as_classifier", "export_state_dict", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
