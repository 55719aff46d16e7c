"""Simulated labellings of two models' disagreements: false verdicts, labels needed, and labels at random images."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.certificate.stopping import stopping_times
from benchmarks.tables import markdown

DELTA = 0.05
Streams = NDArray[np.int8]
PAGE = """## False verdicts

{false}
## Labels until the verdict

{needed}
## Labelling random images instead

{at_random}"""


class Disagreements(NamedTuple):
    """The images on which two models disagree: N images, and outcomes (M,), +1, -1 or 0 of each disagreement."""

    images: int
    outcomes: Streams

    @property
    def difference(self):
        """The true difference of accuracy."""
        return float(self.outcomes.sum(dtype=int) / self.images)

    def label(self, orders, generator, margin=0.0):
        """Ends of as many labellings, each in a random order of the M disagreements."""
        streams = self.shuffled(orders, generator)
        return stopping_times(streams, DELTA, margin, disagreements=len(self.outcomes), images=self.images)

    def label_random_images(self, orders, generator):
        """The same of all N images; where the models agree the outcome is 0."""
        outcomes = np.pad(self.outcomes, (0, self.images - len(self.outcomes)))
        return Disagreements(self.images, outcomes).label(orders, generator)

    def beside_random_images(self, orders, generator):
        """Ends at the disagreements; their labels, those at random images, and how many times fewer they are."""
        ends = self.label(orders, generator)
        at_random = self.label_random_images(orders, generator)
        fewer = np.median(at_random.labels) / np.median(ends.labels)
        return ends, labels_of(ends), labels_of(at_random), f"{fewer:.1f}"

    def shuffled(self, orders, generator):
        return generator.permuted(np.tile(self.outcomes, (orders, 1)), axis=1)


def simulated(images, disagreements, favouring, decisive=1.0):
    """M disagreements of N images.

    Args:
        favouring: share of the decisive disagreements on which the adapted model is right
        decisive: share of the disagreements on which one of the two is right
    """
    right_or_wrong = round(decisive * disagreements)
    right = round(favouring * right_or_wrong)
    counts = [right, right_or_wrong - right, disagreements - right_or_wrong]
    return Disagreements(images, np.repeat(np.array([1, -1, 0], dtype=np.int8), counts))


def z_test_after_every_label(streams, first=10):
    """Percent of the streams that a two-sided z-test at 5 % rejects at some label from ``first`` on."""
    totals = streams.cumsum(axis=1, dtype=int)[:, first - 1 :]
    squares = (streams != 0).cumsum(axis=1)[:, first - 1 :]
    return 100 * float((np.abs(totals) > 1.96 * np.sqrt(np.maximum(squares, 1))).any(axis=1).mean())


def false_verdicts(orders, generator):
    """Rows: what the disagreements are, false verdicts in percent, the same by a z-test that is looked at each time."""

    def row(kind, streams, ends):
        return [kind, f"{100 * (ends.verdicts != 0).mean():.1f}", f"{z_test_after_every_label(streams):.1f}"]

    for decisive in (1.0, 0.5):
        equal = simulated(10_000, 1000, 0.5, decisive)
        kind = f"equal models, {decisive * 100:.0f} % of the disagreements decisive"
        streams = generator.choice(equal.outcomes, size=(orders, 1000))
        yield row(f"{kind}, independent draws", streams, stopping_times(streams, DELTA))
        streams = equal.shuffled(orders, generator)
        ends = stopping_times(streams, DELTA, disagreements=1000, images=10_000)
        yield row(f"{kind}, 1,000 without replacement", streams, ends)
    at_margin = simulated(10_000, 1000, 0.55)
    kind = f"better by exactly the margin of {100 * at_margin.difference:.0f} point, 1,000 without replacement"
    ends = at_margin.label(orders, generator, at_margin.difference)
    yield [*row(kind, at_margin.outcomes[None], ends)[:2], ""]


def labels_needed(orders, generator):
    """Rows: disagreements, decisive share, labels (median, 90th percentile) at 60, 70, 80 % in favour."""
    for disagreements in (300, 1000, 3000):
        for decisive in (1.0, 0.7):
            row = [f"{disagreements:,}", f"{100 * decisive:.0f} %"]
            for favouring in (0.6, 0.7, 0.8):
                ends = simulated(10_000, disagreements, favouring, decisive).label(orders, generator)
                false = 100 * (ends.verdicts != 1).mean()
                row.append(labels_of(ends) + (f" ({false:.1f})" if false else ""))
            yield row


def at_random_images(orders, generator):
    """Rows: share of disagreements, difference of accuracy, labels at them, at random images, how many times fewer."""
    for share in (0.05, 0.1, 0.2, 0.4):
        population = simulated(5000, round(5000 * share), 0.7, 0.8)
        _, *labels = population.beside_random_images(orders, generator)
        yield [f"{100 * share:.0f} %", f"{100 * population.difference:.1f}", *labels]


def labels_of(ends):
    """Median and 90th percentile."""
    return " / ".join(f"{np.quantile(ends.labels, share, method='inverted_cdf')}" for share in (0.5, 0.9))


def page(orders, seed):
    """All tables as Markdown."""
    generator = np.random.default_rng(seed)
    compared = ("images with a disagreement", "difference, points", "labels", "labels at random images", "times fewer")
    return PAGE.format(
        false=markdown(("disagreements", "false verdicts, %", "z-test, %"), false_verdicts(orders, generator)),
        needed=markdown(("M", "decisive", "60 %", "70 %", "80 %"), labels_needed(orders, generator)),
        at_random=markdown(compared, at_random_images(orders, generator)),
    )
