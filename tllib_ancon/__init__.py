"""Anchored Confidence (AnCon) for domain adaptation without labels, as a plugin for the Transfer-Learning-Library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tllib_ancon._version import __version__

if TYPE_CHECKING:
    from tllib_ancon import methods
    from tllib_ancon.certifying.run import certify
    from tllib_ancon.config import AdaptConfig, PretrainConfig
    from tllib_ancon.errors import UserError
    from tllib_ancon.evaluation import expected_calibration_error
    from tllib_ancon.selection import corr_c, infomax, mean_entropy
    from tllib_ancon.self_training import (
        AdaptiveSmoothing,
        AnchoredConfidence,
        EarlyLearningRegularization,
        NeighborhoodReciprocity,
        TemporalEnsemble,
        generalized_cross_entropy,
    )
    from tllib_ancon.training.adapt import AdaptationResult, adapt
    from tllib_ancon.training.assess import Assessment, assess
    from tllib_ancon.training.predict import Predictions, predict
    from tllib_ancon.training.pretrain import pretrain

__all__ = [
    "AdaptConfig",
    "AdaptationResult",
    "AdaptiveSmoothing",
    "AnchoredConfidence",
    "Assessment",
    "EarlyLearningRegularization",
    "NeighborhoodReciprocity",
    "Predictions",
    "PretrainConfig",
    "TemporalEnsemble",
    "UserError",
    "__version__",
    "adapt",
    "assess",
    "certify",
    "corr_c",
    "expected_calibration_error",
    "generalized_cross_entropy",
    "infomax",
    "mean_entropy",
    "methods",
    "predict",
    "pretrain",
]

_HOMES = {
    "training.adapt": ("adapt", "AdaptationResult"),
    "training.assess": ("assess", "Assessment"),
    "training.predict": ("predict", "Predictions"),
    "training.pretrain": ("pretrain",),
    "certifying.run": ("certify",),
    "config": ("AdaptConfig", "PretrainConfig"),
    "self_training": (
        *("AdaptiveSmoothing", "AnchoredConfidence", "TemporalEnsemble", "EarlyLearningRegularization"),
        *("NeighborhoodReciprocity", "generalized_cross_entropy"),
    ),
    "selection": ("infomax", "corr_c", "mean_entropy"),
    "evaluation": ("expected_calibration_error",),
    "errors": ("UserError",),
}


def __getattr__(name: str) -> Any:
    if name == "methods":
        return importlib.import_module(f"{__name__}.methods")
    module = next((module for module, names in _HOMES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
