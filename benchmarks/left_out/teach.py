"""What labels are worth that teach: accuracy and verdict, beside labels that all certify and beside fine-tuning.

    python -m benchmarks.left_out.teach DATA OUT [--labels 20 50 100] [--draws 3]

DATA and OUT are those of ``benchmarks.left_out.grid``; OUT receives ``teach.csv``, a row a run. ``certify`` is
``ancon-auto``, and all labels certify it; with ``teach`` half of them teach it and the others certify; ``fine-tuning``
learns from that half in as many steps, and from nothing else (batch-norm takes up the same statistics). Accuracies, in
percent, are those on the half of the images that teaches in none of them. The same command continues what was cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks import parser, run
from benchmarks.left_out.families import Cell, Cells
from tllib_ancon import adapt
from tllib_ancon.methods import Method, Task, Visit, register
from tllib_ancon.training.teaching import certifying

CELLS = (
    Cell("office31", "A-W", "equal"),
    Cell("digits", "mnist-usps", "equal"),
    Cell("cifar10-c", "resnet20-gaussian_noise-5", "equal"),
)
SHARE = 0.5
COLUMNS = [*Cell._fields, "draw", "variant", "labels", "taught", "source", "accuracy", "certifying", "verdict"]


@register("labels-alone", training_defaults={"criterion": "last", "batch_norm": "mixed"})
def labels_alone(task: Task, options: Any) -> Method:
    def nothing(visit: Visit, targets: Tensor) -> Tensor:
        return 0.0 * visit.logits.sum()

    return Method(nothing)


METHODS = {"certify": "ancon-auto", "teach": "ancon-auto", "fine-tuning": "labels-alone"}


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("data", type=Path, metavar="DATA")
    arguments.add_argument("out", type=Path, metavar="OUT")
    arguments.add_argument("--labels", type=int, nargs="+", default=[20, 50, 100], help="given (default: 20 50 100)")
    arguments.add_argument("--draws", type=int, default=3, help="of the images that have a label (default: 3)")
    args = arguments.parse_args(words)
    file, opened = args.out / "teach.csv", Cells(args.data, args.out)
    made = set(pd.read_csv(file)[COLUMNS[:6]].itertuples(index=False, name=None)) if file.exists() else set()
    torch.set_num_threads(1)
    for draw in range(args.draws):
        for cell in CELLS:
            for variant in METHODS:
                if (*cell, draw, variant) not in made:
                    rows = pd.DataFrame(results(opened, cell, draw, variant, args.labels))
                    rows[COLUMNS].to_csv(file, mode="a", header=not file.exists(), index=False)


def results(opened: Cells, cell: Cell, draw: int, variant: str, counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    task = opened.task(cell)
    order = np.random.default_rng(draw).permutation(len(task.labels))
    kept = certifying({"taught": {"teach": SHARE, "seed": draw}}, len(order))
    for count in counts:
        given: dict[str, Any] = {}
        if variant != "certify":
            answers = np.full(len(order), -1)
            answers[order[:count]] = task.labels[order[:count]]
            given = {"answers": answers, "teach": SHARE}
        if given or count == counts[0]:  # without labels one model is certified by any number of them
            adapted = adapt(
                task.model, task.images, method=METHODS[variant], **{**task.settings, "seed": draw}, **given
            )
        session = adapted.certify(workers=0)
        taught = adapted.summary.get("taught", 0)
        labels = task.labels[kept] if given else task.labels
        while (question := session.question) and len(session.answers) < count - taught:
            session.answer(int(labels[question.position]))
        scored = slice(None) if given else kept
        said = (session.comparison.start, session.comparison.adapted)
        source, accuracy = (round(100 * float((model == labels)[scored].mean()), 2) for model in said)
        numbers = {"labels": count, "taught": taught, "source": source, "accuracy": accuracy}
        found = {"certifying": len(session.answers), "verdict": session.test.verdict}
        yield {**cell._asdict(), "draw": draw, "variant": variant, **numbers, **found}


if __name__ == "__main__":
    run(main)
