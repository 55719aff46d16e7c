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
    "adapt": "training.adapt",
    "AdaptationResult": "training.adapt",
    "assess": "training.assess",
    "Assessment": "training.assess",
    "predict": "training.predict",
    "Predictions": "training.predict",
    "pretrain": "training.pretrain",
    "certify": "certifying.run",
    "AdaptConfig": "config",
    "PretrainConfig": "config",
    "AdaptiveSmoothing": "self_training",
    "AnchoredConfidence": "self_training",
    "TemporalEnsemble": "self_training",
    "EarlyLearningRegularization": "self_training",
    "NeighborhoodReciprocity": "self_training",
    "generalized_cross_entropy": "self_training",
    "infomax": "selection",
    "corr_c": "selection",
    "mean_entropy": "selection",
    "expected_calibration_error": "evaluation",
    "UserError": "errors",
}


def __getattr__(name: str) -> Any:
    if name == "methods":
        return importlib.import_module(f"{__name__}.methods")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
