"""The algorithm, in pure torch: one file per idea of the paper."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tllib_ancon.self_training.aad import AttractingDispersing
    from tllib_ancon.self_training.adaptive_smoothing import AdaptiveSmoothing
    from tllib_ancon.self_training.anchored import AnchoredConfidence
    from tllib_ancon.self_training.class_prior import estimate_class_prior, likeliest_class_prior
    from tllib_ancon.self_training.elr import EarlyLearningRegularization
    from tllib_ancon.self_training.ensemble import TemporalEnsemble
    from tllib_ancon.self_training.gce import generalized_cross_entropy
    from tllib_ancon.self_training.nrc import NeighborhoodReciprocity
    from tllib_ancon.self_training.pseudo_label import cross_entropy
    from tllib_ancon.self_training.shot import CentroidPseudoLabels, information_maximization

_HOMES = {
    "AdaptiveSmoothing": "adaptive_smoothing",
    "AnchoredConfidence": "anchored",
    "AttractingDispersing": "aad",
    "CentroidPseudoLabels": "shot",
    "EarlyLearningRegularization": "elr",
    "NeighborhoodReciprocity": "nrc",
    "TemporalEnsemble": "ensemble",
    "cross_entropy": "pseudo_label",
    "estimate_class_prior": "class_prior",
    "likeliest_class_prior": "class_prior",
    "generalized_cross_entropy": "gce",
    "information_maximization": "shot",
}

__all__ = [
    "AdaptiveSmoothing",
    "AnchoredConfidence",
    "AttractingDispersing",
    "CentroidPseudoLabels",
    "EarlyLearningRegularization",
    "NeighborhoodReciprocity",
    "TemporalEnsemble",
    "cross_entropy",
    "estimate_class_prior",
    "generalized_cross_entropy",
    "information_maximization",
    "likeliest_class_prior",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
