"""Small comparisons of two models."""

from __future__ import annotations

import numpy as np

from tllib_ancon.certify.comparison import Comparison

CLASSES = ["bike", "mug", "pen", "lamp"]


def comparison(num_images: int = 100, disagreements: int = 60, seed: int = 0) -> Comparison:
    generator = np.random.default_rng(seed)
    start = generator.integers(0, len(CLASSES), num_images)
    adapted = start.copy()
    moved = generator.permutation(num_images)[:disagreements]
    adapted[moved] = (start[moved] + generator.integers(1, len(CLASSES), disagreements)) % len(CLASSES)
    return Comparison(start, adapted, [f"amazon/{i:03}.jpg" for i in range(num_images)], CLASSES)


def labels(models: Comparison, favouring: float = 0.9, seed: int = 1) -> np.ndarray:
    """True classes of which this share of the disagreements has the adapted model's."""
    adapted_right = np.random.default_rng(seed).random(len(models)) < favouring
    return np.where(adapted_right, models.adapted, models.start)
