"""The certificate: what a session found, ready for JSON and in words."""

from __future__ import annotations

import math
from typing import Any

from tllib_ancon.certification import Verdict
from tllib_ancon.certify.answers import CANNOT_TELL
from tllib_ancon.certify.session import Session
from tllib_ancon.stopping_times import labels_needed

FAVOURING = (0.6, 0.7, 0.8)
"""Shares of the decisive disagreements in favour of the adapted model for which it says what "better" would take."""

Certificate = dict[str, Any]


def certificate_of(session: Session) -> Certificate:
    """What a session found; accuracies and their differences are shares of all images.

    - ``verdict``: "better", "worse" or "undecided", of the adapted model against the start model
    - ``settled``: whether further labels are of no use
    - ``returned``: "adapted" if better, else "start"
    - ``difference``: the mean outcome so far as a difference of accuracy, None before the first label
    - ``interval``: lower and upper end of that difference, valid at level 1 - δ whenever one stops
    - ``labels``, and of these ``adapted_right``, ``start_right``, ``another`` and ``cannot_tell``
    - ``verdict_if_cannot_tell_counts_against``: what the verdict would be if each image whose class could not be told
      counted against it
    - ``images``, ``disagreements``, ``delta``, ``margin``, ``seed``
    - ``e_better``, ``e_worse``: None where infinite, which is certainty; ``threshold``
    - ``labels_needed``: where not settled, see :func:`needed`
    """
    test = session.test
    outcomes, cannot_tell = test.outcomes, session.answers.count(CANNOT_TELL)
    return {
        "verdict": test.verdict,
        "settled": test.settled,
        "returned": "adapted" if test.verdict == "better" else "start",
        "difference": test.estimate if outcomes else None,
        "interval": list(test.interval),
        "labels": len(outcomes),
        "adapted_right": outcomes.count(1),
        "start_right": outcomes.count(-1),
        "another": outcomes.count(0) - cannot_tell,
        "cannot_tell": cannot_tell,
        "verdict_if_cannot_tell_counts_against": _verdict_against(session),
        "images": len(session.comparison),
        "disagreements": len(session),
        "delta": session.delta,
        "margin": session.margin,
        "seed": session.seed,
        "e_better": _finite(test.e_better),
        "e_worse": _finite(test.e_worse),
        "threshold": test.threshold,
        "labels_needed": needed(session) if not test.settled else [],
    }


def needed(session: Session) -> list[dict[str, float | int | None]]:
    """What "better" would take, for each of :data:`FAVOURING`.

    Outputs: ``favouring``, the ``gain`` in accuracy that it is if all disagreements are decisive, and the labels from
    the first to the verdict: ``median`` and ``ninetieth_percentile`` over random orders, None where all would not do.
    """
    disagreements, images = len(session), len(session.comparison)
    rows: list[dict[str, float | int | None]] = []
    for favouring in FAVOURING:
        median, ninetieth = labels_needed(favouring, disagreements, images, session.delta, session.margin)
        gain = (2 * favouring - 1) * disagreements / images
        rows.append({"favouring": favouring, "gain": gain, "median": median, "ninetieth_percentile": ninetieth})
    return rows


def in_words(certificate: Certificate) -> list[str]:
    """The certificate as lines, differences in points."""
    labels, disagreements, images = (f"{certificate[name]:,}" for name in ("labels", "disagreements", "images"))
    chance = f"wrong with probability {100 * certificate['delta']:g} % at most"
    counts = f"{labels} of {disagreements} disagreements have a label, of {images} images"
    rest = f"{_between(*certificate['interval'])} ({chance}); {counts}"
    if certificate["verdict"] == "undecided":
        return [f"not certified: {rest}", *_further(certificate)]
    lines = [f"certified {certificate['verdict']}: {rest}"]
    if certificate["verdict_if_cannot_tell_counts_against"] != certificate["verdict"]:
        unknown = f"{certificate['cannot_tell']:,} images whose class nobody could tell"
        lines.append(f"the verdict would be undecided if the {unknown} counted against it")
    return lines


def _between(lower: float, upper: float) -> str:
    accuracy = "the adapted model's accuracy minus the start's"
    if lower == upper:
        return f"{accuracy} is {_points(lower)} points"
    return f"{accuracy} is between {_points(lower)} and {_points(upper)} points"


def _further(certificate: Certificate) -> list[str]:
    """What further labels would do."""
    if certificate["settled"]:
        return [f"further labels decide nothing: the difference is within the margin of {certificate['margin']:g}"]
    return [_takes(row) for row in certificate["labels_needed"] if row["median"] is not None]


def _takes(row: dict[str, Any]) -> str:
    favouring, gain = f"{100 * row['favouring']:.0f} %", f"{100 * row['gain']:.1f} points"
    ninetieth = "" if row["ninetieth_percentile"] is None else f" (90th percentile: {row['ninetieth_percentile']:,})"
    return (
        f"if the adapted model is right on {favouring} of the disagreements, a gain of {gain}, about "
        f"{row['median']:,} labels are needed{ninetieth}"
    )


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _verdict_against(session: Session) -> Verdict:
    against = {"better": -1, "worse": 1, "undecided": 0}[session.verdict]
    test = session.new_test()
    for answer, value in zip(session.answers, session.test.outcomes, strict=True):
        test.update(against if answer == CANNOT_TELL else value)
    return test.verdict


def _finite(e_value: float) -> float | None:
    return e_value if math.isfinite(e_value) else None
