"""Errors, p-values and verdicts of paired differences. ``README.md`` of this folder has the protocol."""

from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.05
HARM = 1.5
"""Points below the source model with as many views that count as harm."""


class Estimate(NamedTuple):
    """A mean over units, its standard error, the number of units, and the two-sided p-value of no difference."""

    mean: float
    error: float
    units: int
    p: float


def estimate(differences, sources, targets):
    """The mean of the differences, with the larger of the errors that are clustered by source and by target.

    Args:
        differences: one number a unit, a pair of domains
        sources, targets: of each unit; units that share one of them are not independent
    """
    differences = np.asarray(differences, float)
    mean = float(differences.mean())
    errors = []
    for clusters in (np.asarray(sources), np.asarray(targets)):
        count = len(np.unique(clusters))
        if count > 1:
            errors.append((_clustered_error(differences - mean, clusters, count), count))
    if not errors:
        return Estimate(mean, float("nan"), len(differences), 1.0)
    error, count = max(errors)
    p = 2 * stats.t.sf(abs(mean) / error, count - 1) if error > 0 else float(mean == 0)
    return Estimate(mean, error, len(differences), float(p))


def _clustered_error(deviations, clusters, count):
    sums = np.array([deviations[clusters == cluster].sum() for cluster in np.unique(clusters)])
    return float(np.sqrt(count / (count - 1) * (sums**2).sum()) / len(deviations))


def holm(p_values):
    """p-values corrected for their number by Holm (1979)."""
    p_values = np.asarray(p_values, float)
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * p_values[order]))
    return corrected.tolist()


def verdict(mean, corrected_p):
    """Whether something is better: "yes", "no" or "unclear"."""
    if corrected_p >= LEVEL:
        return "unclear"
    return "yes" if mean > 0 else "no"
