"""Simulated labellings of two models' disagreements: false verdicts, labels needed, and labels at random images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tllib_ancon.stopping_times import StoppingTimes, stopping_times

DELTA = 0.05
Streams = NDArray[np.int8]


@dataclass(frozen=True)
class Disagreements:
    """The images on which two models disagree.

    Args:
        images: N
        outcomes: (M,) +1, -1 or 0 of each disagreement
    """

    images: int
    outcomes: Streams

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def difference(self) -> float:
        """The true difference of accuracy."""
        return float(self.outcomes.sum(dtype=int) / self.images)

    def label(self, orders: int, generator: np.random.Generator, margin: float = 0.0) -> StoppingTimes:
        """Ends of as many labellings, each in a random order of the M disagreements."""
        streams = shuffled(self.outcomes, orders, generator)
        return stopping_times(streams, DELTA, margin, disagreements=len(self), images=self.images)

    def label_random_images(self, orders: int, generator: np.random.Generator) -> StoppingTimes:
        """The same of all N images; where the models agree the outcome is 0."""
        everything = np.concatenate([self.outcomes, np.zeros(self.images - len(self), dtype=np.int8)])
        return Disagreements(self.images, everything).label(orders, generator)


def simulated(images: int, disagreements: int, favouring: float, decisive: float = 1.0) -> Disagreements:
    """M disagreements of N images.

    Args:
        images: N
        disagreements: M
        favouring: share of the decisive disagreements on which the adapted model is right
        decisive: share of the disagreements on which one of the two is right
    """
    right_or_wrong = round(decisive * disagreements)
    right = round(favouring * right_or_wrong)
    counts = [right, right_or_wrong - right, disagreements - right_or_wrong]
    return Disagreements(images, np.repeat(np.array([1, -1, 0], dtype=np.int8), counts))


def shuffled(outcomes: Streams, orders: int, generator: np.random.Generator) -> Streams:
    return generator.permuted(np.tile(outcomes, (orders, 1)), axis=1)


def independent(population: Disagreements, labels: int, orders: int, generator: np.random.Generator) -> Streams:
    """Streams of independent draws instead of those without replacement."""
    return generator.choice(population.outcomes, size=(orders, labels))


def z_test_after_every_label(streams: Streams, first: int = 10) -> float:
    """Share of the streams that a two-sided z-test at 5 % rejects at some label from ``first`` on."""
    totals = streams.cumsum(axis=1, dtype=int)[:, first - 1 :]
    squares = (streams != 0).cumsum(axis=1)[:, first - 1 :]
    return float((np.abs(totals) > 1.96 * np.sqrt(np.maximum(squares, 1))).any(axis=1).mean())


def false_verdicts(orders: int, generator: np.random.Generator) -> Iterator[Sequence[str]]:
    """Rows: what the disagreements are, false verdicts in percent, the same by a z-test that is looked at each time."""
    for decisive in (1.0, 0.5):
        equal = simulated(10_000, 1000, 0.5, decisive)
        kind = f"equal models, {decisive * 100:.0f} % of the disagreements decisive"
        streams = independent(equal, 1000, orders, generator)
        yield f"{kind}, independent draws", _percent(stopping_times(streams, DELTA)), _z(streams)
        streams = shuffled(equal.outcomes, orders, generator)
        ends = stopping_times(streams, DELTA, disagreements=1000, images=10_000)
        yield f"{kind}, 1,000 without replacement", _percent(ends), _z(streams)
    at_margin = simulated(10_000, 1000, 0.55)
    kind = f"better by exactly the margin of {100 * at_margin.difference:.0f} point, 1,000 without replacement"
    yield kind, _percent(at_margin.label(orders, generator, at_margin.difference)), ""


def labels_needed(orders: int, generator: np.random.Generator) -> Iterator[Sequence[str]]:
    """Rows: disagreements, decisive share, labels (median, 90th percentile) at 60, 70, 80 % in favour."""
    for disagreements in (300, 1000, 3000):
        for decisive in (1.0, 0.7):
            row = [f"{disagreements:,}", f"{100 * decisive:.0f} %"]
            for favouring in (0.6, 0.7, 0.8):
                population = simulated(10_000, disagreements, favouring, decisive)
                row.append(_with_false(population.label(orders, generator)))
            yield row


def at_random_images(orders: int, generator: np.random.Generator) -> Iterator[Sequence[str]]:
    """Rows: share of disagreements, difference of accuracy, labels at them, at random images, how many times fewer."""
    for share in (0.05, 0.1, 0.2, 0.4):
        population = simulated(5000, round(5000 * share), 0.7, 0.8)
        at_disagreements = population.label(orders, generator)
        at_random = population.label_random_images(orders, generator)
        ratio = np.median(at_random.labels) / np.median(at_disagreements.labels)
        points = f"{100 * population.difference:.1f}"
        yield f"{100 * share:.0f} %", points, labels_of(at_disagreements), labels_of(at_random), f"{ratio:.1f}"


def page(orders: int, seed: int) -> str:
    """All tables as Markdown."""
    generator = np.random.default_rng(seed)
    return "\n".join(
        [
            "# The certificate on simulated labels",
            "",
            f"`python -m benchmarks.certification --streams {orders} --seed {seed}`: {orders:,} random orders a row, "
            f"δ = {DELTA}.",
            "",
            "## False verdicts",
            "",
            "A stream counts if the test ever gives a false verdict: this is the rate at the worst time to stop. "
            "The last column",
            "is what looking after every label costs without it: a two-sided z-test at 5 %, from the tenth label on.",
            "",
            *table(["disagreements", "false verdicts, %", "z-test, %"], false_verdicts(orders, generator)),
            "",
            "## Labels until the verdict",
            "",
            "Median / 90th percentile, by M, the share of the M disagreements that is decisive, and the share of these "
            "on which the",
            "adapted model is right. In brackets: false verdicts in percent.",
            "",
            *table(["M", "decisive", "60 %", "70 %", "80 %"], labels_needed(orders, generator)),
            "",
            "## Labelling random images instead",
            "",
            "5,000 images, 80 % of the disagreements decisive, 70 % of these in favour of the adapted model.",
            "",
            *table(
                [
                    "images with a disagreement",
                    "difference, points",
                    "labels",
                    "labels at random images",
                    "times fewer",
                ],
                at_random_images(orders, generator),
            ),
            "",
        ]
    )


def table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _percent(ends: StoppingTimes) -> str:
    return f"{100 * (ends.verdicts != 0).mean():.1f}"


def _z(streams: Streams) -> str:
    return f"{100 * z_test_after_every_label(streams):.1f}"


def labels_of(ends: StoppingTimes) -> str:
    median, ninetieth = (int(np.quantile(ends.labels, share, method="inverted_cdf")) for share in (0.5, 0.9))
    return f"{median} / {ninetieth}"


def _with_false(ends: StoppingTimes) -> str:
    false = 100 * (ends.verdicts != 1).mean()
    return labels_of(ends) + (f" ({false:.1f})" if false else "")
