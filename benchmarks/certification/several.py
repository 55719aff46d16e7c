"""Several adapted models by one stream of labels, beside each by its own, on stored predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.certification.simulation import DELTA
from benchmarks.tables import markdown
from tllib_ancon.certification import StoppingTimes, stopping_times
from tllib_ancon.errors import UserError

Labels = NDArray[np.int64]
BANDS = ((0, 2), (2, 5), (5, 10), (10, 100))
HEADER = (
    *("population", "models", "images in question", "best difference, points", "largest, points", "one stream"),
    *("each alone", "best alone", "returned, points", "not better, %"),
)
PAGE = """# Several adapted models by one stream of labels

`python -m benchmarks.certification --several FOLDER --streams {orders} --seed {seed}`, δ = {delta}, `--side better`:
{orders:,} random orders of the images on which any model differs from the source model. FOLDER holds `POPULATION.npz`
with `labels` (N,), `source` and one array a model, scores (N, classes).

- One stream: each of K models at δ / K, until one is certified better or all are decided.
- Each alone: the sum of the labels for each of the K models by itself at δ / K.
- Best alone: the labels for the best of them at δ, by who knows which it is.
- Returned: mean difference of accuracy of the model that is returned, 0 for the source model.
- Not better: share of the orders that return a model no better than the source model; {percent:g} % are allowed.

Labels are medians.

{table}
The median over the populations, by the largest absolute difference of a model:

{bands}"""


def one_stream(outcomes: Labels, differ: NDArray[np.bool_], order: Labels) -> tuple[Labels, Labels]:
    """Of each order the labels of a session, and the model that it returns, -1 for the source model; from the outcomes
    (K, N) of each model, where it differs from the source model (K, N), and orders (S, M) of the images in question."""
    asks, closed, better = np.zeros(order.shape, dtype=bool), [], []
    places = np.arange(order.shape[1])
    for of_one, differs in zip(outcomes, differ[:, order], strict=False):
        ends = stops(of_one[order][differs].reshape(len(order), -1), DELTA / len(outcomes), outcomes.shape[1])
        closed.append((differs.cumsum(axis=1) >= ends.labels[:, None]).argmax(axis=1))
        better.append(np.where(ends.verdicts == 1, closed[-1], order.shape[1]))
        asks |= differs & (places <= closed[-1][:, None])
    first, found = np.min(better, axis=0), np.min(better, axis=0) < order.shape[1]
    end = np.where(found, first, np.max(closed, axis=0))
    labels = (asks & (places <= end[:, None])).sum(axis=1)
    return labels, np.where(found, np.argmin(better, axis=0), -1)


def stops(streams: Labels, delta: float, images: int) -> StoppingTimes:
    return stopping_times(streams, delta, disagreements=streams.shape[1], images=images, side="better")


def alone(outcomes: Labels, delta: float, images: int, orders: int, generator: np.random.Generator) -> float:
    """Median labels for one model, from the outcomes of its disagreements."""
    return float(np.median(stops(generator.permuted(np.tile(outcomes, (orders, 1)), axis=1), delta, images).labels))


def rows(files: Sequence[Path], orders: int, generator: np.random.Generator) -> Iterator[list[object]]:
    """A row each population in which two models or more differ from the source model."""
    for file in files:
        with np.load(file) as stored:
            said = {name: stored[name].argmax(axis=1) for name in stored.files if name != "labels"}
            labels, start = stored["labels"], said.pop("source")
        models = np.array([one for one in said.values() if (one != start).any()])
        if len(models) < 2:
            continue
        outcomes, differ = (models == labels).astype(int) - (start == labels), models != start
        points, images = 100 * outcomes.mean(axis=1), len(labels)
        in_question = np.flatnonzero(differ.any(axis=0))
        order = generator.permuted(np.tile(in_question, (orders, 1)), axis=1)
        asked_of_all, returned = one_stream(outcomes, differ, order)
        own = [one[where] for one, where in zip(outcomes, differ, strict=True)]
        each = sum(alone(one, DELTA / len(models), images, orders, generator) for one in own)
        best = alone(own[int(points.argmax())], DELTA, images, orders, generator)
        gained = np.append(points, 0.0)[returned]
        false = 100 * float(((returned >= 0) & (gained <= 0)).mean())
        asked = [f"{number:.0f}" for number in (np.median(asked_of_all), each, best)]
        difference = [f"{number:+.1f}" for number in (points.max(), points[np.abs(points).argmax()])]
        size = [file.stem, len(models), len(in_question)]
        yield [*size, *difference, *asked, f"{gained.mean():+.1f}", f"{false:.1f}"]


def page(folder: Path, orders: int, seed: int) -> str:
    """Both tables as Markdown."""
    if not (files := sorted(folder.glob("*.npz"))):
        raise UserError(f"no *.npz in {folder}")
    table, bands = list(rows(files, orders, np.random.default_rng(seed))), []
    for least, most in BANDS:
        if kept := [row for row in table if least <= abs(float(str(row[4]))) < most]:
            numbers = np.array([row[5:8] for row in kept], dtype=float)
            middle = [f"{number:.0f}" for number in np.median(numbers, axis=0)]
            shares = [f"{np.median(numbers[:, 0] / numbers[:, at]):.2f}" for at in (1, 2)]
            bands.append([f"{least} to {most}" if most < 100 else f"from {least}", len(kept), *middle, *shares])
    header = ("points", "populations", *HEADER[5:8], "of each alone", "of best alone")
    shown = {"table": markdown(HEADER, table), "bands": markdown(header, bands)}
    return PAGE.format(orders=orders, seed=seed, delta=DELTA, percent=100 * DELTA, **shown)
