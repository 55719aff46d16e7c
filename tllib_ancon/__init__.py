"""Anchored Confidence (AnCon) for domain adaptation without labels, as a plugin for the Transfer-Learning-Library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tllib_ancon._version import __version__

_HOMES = {
    "AnchoredConfidence": "self_training",
    "TemporalEnsemble": "self_training",
    "EarlyLearningRegularization": "self_training",
    "NeighborhoodReciprocity": "self_training",
    "generalized_cross_entropy": "self_training",
    "methods": "self_training.methods",
    "infomax": "selection",
    "corr_c": "selection",
    "mean_entropy": "selection",
    "expected_calibration_error": "evaluation",
    "UserError": "errors",
}

__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604

if TYPE_CHECKING:
    from tllib_ancon.errors import UserError
    from tllib_ancon.evaluation import expected_calibration_error
    from tllib_ancon.selection import corr_c, infomax, mean_entropy
    from tllib_ancon.self_training import (
        AnchoredConfidence,
        EarlyLearningRegularization,
        NeighborhoodReciprocity,
        TemporalEnsemble,
        generalized_cross_entropy,
        methods,
    )


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    return home if _HOMES[name].endswith("." + name) else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
