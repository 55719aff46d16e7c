"""Estimated class frequencies of a target beside the true ones, in every cell of the left-out families.

    python -m benchmarks.class_prior DATA OUT

DATA and OUT are those of :mod:`benchmarks.left_out.grid`. Each estimate uses the source model, and the model that
``ancon-auto`` adapts:

- ``counted``: fraction of each predicted class, as ``predict(...).class_prior``
- ``shrunk``: drawn towards equal classes, as the class prior of ``ancon-auto``
- ``bbse``: from the confusion matrix of the model on the source's hold-out (Lipton et al., ICML 2018)
- ``saerens``: maximum likelihood by EM, from the model's probabilities (Saerens et al., Neural Computation 2002)

A row of OUT/class_prior.csv holds the total variation between each estimate and the truth, in [0, 1]. The same command
resumes after an interruption, and prints the table.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks import folders, run
from benchmarks.assess.points import source_of
from benchmarks.left_out.families import Cell, Cells
from benchmarks.left_out.grid import FAMILY_CELLS
from benchmarks.tables import markdown, record, recorded
from tllib_ancon import adapt, predict
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.settings import settings_of
from tllib_ancon.self_training import estimate_class_prior

Frequencies = NDArray[np.float64]
ESTIMATES = ("counted", "shrunk", "bbse", "saerens")
MODELS = ("source", "adapted")


def main(words: Sequence[str] | None = None) -> None:
    args = folders(__spec__.name, __doc__).parse_args(words)
    torch.set_num_threads(1)
    file, opened = args.out / "class_prior.csv", Cells(args.data, args.out, images=400)
    made = recorded(file, Cell._fields)
    for cell in FAMILY_CELLS:
        if cell not in made:
            record(file, [{**cell._asdict(), **distances(opened, cell)}])
    print(table(pd.read_csv(file)))


def distances(opened: Cells, cell: Cell) -> dict[str, Any]:
    """Total variation of each estimate by each model."""
    task = opened.task(cell)
    source, target = source_of(opened, cell, task)
    truth = frequencies(target.labels, target.num_classes)
    adapted = adapt(task.model, target.without_labels(), method="ancon-auto", **task.settings).model
    known = {*settings_of(PredictConfig)} - {"scratch"}
    settings = {name: value for name, value in task.settings.items() if name in known}
    row: dict[str, Any] = {"images": len(target)}
    for kind, model in zip(MODELS, (task.model, adapted), strict=True):
        of_source, of_target = (predict(model, images, **settings).probabilities for images in (source, target))
        estimates = all_estimates(of_source, source.labels, of_target)
        row |= {f"{kind} {name}": round(abs(found - truth).sum() / 2, 4) for name, found in estimates}
    return row


def all_estimates(
    of_source: NDArray[np.float32], labels: Any, of_target: NDArray[np.float32]
) -> Iterator[tuple[str, Frequencies]]:
    """Each estimate by its name, from probabilities (M, K) of the source's hold-out with its labels and (N, K)."""
    num_classes = of_target.shape[1]
    counted = frequencies(of_target.argmax(1), num_classes)
    yield "counted", counted
    yield "shrunk", estimate_class_prior(torch.from_numpy(of_target)).numpy()
    confusion = np.zeros((num_classes, num_classes))
    np.add.at(confusion, (of_source.argmax(1), labels), 1 / len(labels))
    ratios, _ = nnls(confusion, counted)  # a small hold-out lacks classes: no inverse
    yield "bbse", normalised(ratios * confusion.sum(0))
    prior = normalised(np.bincount(labels, minlength=num_classes) + 1.0)
    found, likelihood = prior, of_target / prior
    for _ in range(1000):
        found = normalised((found * likelihood / (likelihood @ found)[:, None]).sum(0))
    yield "saerens", found


def frequencies(labels: Any, num_classes: int) -> Frequencies:
    return normalised(np.bincount(labels, minlength=num_classes).astype(float))


def normalised(values: Frequencies) -> Frequencies:
    return values / values.sum()


def table(rows: pd.DataFrame) -> str:
    """Mean over cells and standard error over pairs of domains or corruptions, in points, of each family, each kind of
    target and of all."""
    groups = [*rows.groupby("family", sort=False), *rows.groupby("kind", sort=False), ("all", rows)]
    shown = []
    for kind in MODELS:
        for name, part in groups:
            numbers = 100 * part[[f"{kind} {estimate}" for estimate in ESTIMATES]]
            errors = numbers.groupby([part.family, part.pair]).mean().sem()
            cells = (f"{mean:.1f} ± {error:.1f}" for mean, error in zip(numbers.mean(), errors, strict=True))
            shown.append((f"{kind} model, {name} ({len(part)})", *cells))
    return markdown(["model, cells", *ESTIMATES], shown, numbers=True)


if __name__ == "__main__":
    run(main)
