"""How many labels :class:`~tllib_ancon.certification.DisagreementTest` takes, from simulated orders of labelling."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.certification import DisagreementTest, Outcomes, first_at, require_share
from tllib_ancon.errors import UserError

FIRST_LABELS = 256
"""Labels of each stream that are looked at first."""
LABELS_AT_ONCE = 2**20
"""Labels of all streams together that are computed at a time: 8 MiB an array."""


class StoppingTimes(NamedTuple):
    """How simulated streams ended.

    Attributes:
        labels: (S,) int64, labels after which nothing more was asked
        verdicts: (S,) int8, 1 "better", -1 "worse", 0 "undecided"
    """

    labels: NDArray[np.int64]
    verdicts: NDArray[np.int8]


def stopping_times(
    outcomes: ArrayLike,
    delta: float = 0.05,
    margin: float = 0.0,
    *,
    disagreements: int | None = None,
    images: int | None = None,
) -> StoppingTimes:
    """When :class:`~tllib_ancon.certification.DisagreementTest` gives its first verdict, for many streams of outcomes.

    A stream without a verdict ends with its last outcome as "undecided".

    Args:
        delta, margin, disagreements, images: of :class:`~tllib_ancon.certification.DisagreementTest`

    Inputs:
        - outcomes: in the order in which they are drawn, values -1, 0, 1.

    Shape: outcomes (S, T) integer, T ≤ M; the fields of the output (S,).

    Raises:
        UserError: other values or shapes; as :class:`~tllib_ancon.certification.DisagreementTest`.
    """
    test = DisagreementTest(delta, margin, disagreements=disagreements, images=images)
    streams = np.asarray(outcomes)
    if streams.ndim != 2 or not np.isin(streams, (-1, 0, 1)).all():
        raise UserError("outcomes are a matrix of -1, 0 and 1: a row per stream, a column per label")
    if disagreements is not None and streams.shape[1] > disagreements:
        raise UserError(f"the streams have {streams.shape[1]} labels, but there are {disagreements} disagreements")
    parts = np.array_split(streams.astype(np.int8), math.ceil(streams.size / LABELS_AT_ONCE) or 1)
    labels, verdicts = zip(*(_first_verdicts(test, part) for part in parts), strict=True)
    return StoppingTimes(np.concatenate(labels), np.concatenate(verdicts))


def labels_needed(
    favouring: float,
    disagreements: int,
    images: int,
    delta: float = 0.05,
    margin: float = 0.0,
    *,
    decisive: float = 1.0,
    quantiles: tuple[float, ...] = (0.5, 0.9),
    orders: int = 200,
    seed: int = 0,
) -> tuple[int | None, ...]:
    """Labels until "better" if the adapted model truly is, from simulated random orders of the disagreements.

    Args:
        favouring (float): share of the decisive disagreements on which the adapted model is right, in [0, 1]. The
            difference of accuracy is then (2 · favouring - 1) · decisive · M / N
        disagreements (int): M
        images (int): N
        delta, margin: of :class:`~tllib_ancon.certification.DisagreementTest`
        decisive (float): share of the disagreements on which one of the two is right, in [0, 1]. Default: 1
        quantiles: of the number of labels over the orders. Default: the median and the 90th percentile
        orders (int): simulated orders. Default: 200
        seed (int): of the orders. Default: 0

    Outputs: for each quantile the number of labels, or None where "better" does not come.

    Raises:
        UserError: a share out of range; as :class:`~tllib_ancon.certification.DisagreementTest`.
    """
    require_share("favouring", favouring)
    require_share("decisive", decisive)
    right = round(favouring * decisive * disagreements)
    wrong = round(decisive * disagreements) - right
    population = np.repeat(np.array([1, -1, 0], dtype=np.int8), [right, wrong, disagreements - right - wrong])
    streams = np.random.default_rng(seed).permuted(np.tile(population, (orders, 1)), axis=1)
    ends = stopping_times(streams, delta, margin, disagreements=disagreements, images=images)
    labels = np.where(ends.verdicts == 1, ends.labels, np.inf)
    found = np.quantile(labels, quantiles, method="inverted_cdf")
    return tuple(None if math.isinf(number) else int(number) for number in found)


def _first_verdicts(test: DisagreementTest, streams: Outcomes) -> tuple[NDArray[np.int64], Outcomes]:
    """Labels and verdicts of each stream; the undecided ones are looked at again with four times their labels."""
    total = streams.shape[1]
    labels, verdicts = np.full(len(streams), total), np.zeros(len(streams), dtype=np.int8)
    undecided, length = np.arange(len(streams)), FIRST_LABELS
    while len(undecided) and length < 4 * max(total, FIRST_LABELS):
        curves = test.log_e_values(streams[undecided, :length])
        better, worse = (first_at(curve, math.log(test.threshold), total) for curve in curves)
        verdicts[undecided] = np.sign(worse - better)
        labels[undecided] = np.minimum(np.minimum(better, worse) + 1, total)
        undecided, length = undecided[better == worse], 4 * length
    return labels, verdicts
