"""How many labels the certificate's test takes, by simulated streams of labels."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.measures.disagreement import DisagreementTest

FIRST_LABELS = 256
"""Labels of each simulated stream that are looked at first; of the undecided ones then four times as many."""
LABELS_AT_ONCE = 2**20
"""Labels of all simulated streams together that are computed at a time: 8 MiB an array."""


class StoppingTimes(NamedTuple):
    """How simulated streams ended.

    Attributes:
        labels: (S,) int64, labels after which nothing more was asked
        verdicts: (S,) int8, 1 "better", -1 "worse", 0 "undecided"
    """

    labels: NDArray[np.int64]
    verdicts: NDArray[np.int8]


def stopping_times(outcomes, delta=0.05, margin=0.0, *, disagreements=None, images=None):
    """When the test gives its first verdict, for many streams of outcomes.

    A stream without a verdict ends with its last outcome as "undecided".

    Args:
        delta, margin, disagreements, images: of :class:`~tllib_ancon.measures.disagreement.DisagreementTest`

    Inputs:
        - outcomes: in the order in which they are drawn, values -1, 0, 1.

    Shape: outcomes (S, T) integer, T ≤ M; the fields of the output (S,).
    """
    test = DisagreementTest(delta, margin, disagreements=disagreements, images=images)
    streams = np.asarray(outcomes, dtype=np.int8)
    labels = np.zeros(len(streams), dtype=np.int64)
    verdicts = np.zeros(len(streams), dtype=np.int8)
    num_parts = max(math.ceil(streams.size / LABELS_AT_ONCE), 1)
    for rows in np.array_split(np.arange(len(streams)), num_parts):
        labels[rows], verdicts[rows] = _ends_of(test, streams[rows])
    return StoppingTimes(labels, verdicts)


def _ends_of(test, streams):
    """When the first verdict falls in each stream (S, T). The first labels suffice for most streams; of the others
    four times as many are looked at, and so on."""
    total = streams.shape[1]
    labels = np.full(len(streams), total)
    verdicts = np.zeros(len(streams), dtype=np.int8)
    undecided = np.arange(len(streams))
    length = FIRST_LABELS
    while len(undecided) and length < 4 * max(total, FIRST_LABELS):
        curves_of_better, curves_of_worse = test.log_e_values(streams[undecided, :length])
        better = test.first_verdict(curves_of_better, total)
        worse = test.first_verdict(curves_of_worse, total)
        verdicts[undecided] = np.sign(worse - better)
        labels[undecided] = np.minimum(np.minimum(better, worse) + 1, total)
        undecided = undecided[better == worse]
        length *= 4
    return StoppingTimes(labels, verdicts)
