"""Does ``ancon-auto`` lose to the source model, and do its running statistics? One row of CSV a run.

    python -m benchmarks.left_out.harm DATA OUT [--variants …] [--seeds 0 1 2] [--images 500] [--epochs 4]
    python -m benchmarks.left_out.harm DATA OUT --table

Each epoch is scored three times with the same weights: by the moving average of batch-norm statistics that training
leaves (``moving``), by statistics that are estimated after the epoch (``estimated``), and by those of the two that
``adapt`` chooses (``chosen``). Training reads none of them, so that all belong to one run. DATA and OUT are those of
:mod:`benchmarks.left_out.grid`; the same command continues what was interrupted.
"""

import copy
from unittest import mock

import pandas as pd
import torch

from benchmarks import folders, run
from benchmarks.left_out.families import FAMILIES, SEVEN, Cell, Cells
from benchmarks.left_out.table import HARM
from benchmarks.tables import by_columns, record, recorded
from tllib_ancon import adapt
from tllib_ancon.training.running_statistics import RunningStatistics

BATCH = 32
VARIANTS = {"ancon-auto": {}, "one view": {"views": 1}}
CELLS = (
    *(Cell("office31", pair, "equal") for pair in ("D-A", "W-A", "A-W", "A-D", "D-W", "W-D")),
    *(Cell("office31", pair, "few") for pair in ("D-A", "W-A")),
    *(Cell(SEVEN, pair, "equal") for pair in ("D-A", "W-A")),
    *(Cell("digits", pair, "equal") for pair in ("mnist-mnist_m", "mnist-usps")),
)
COLUMNS = [*Cell._fields, "variant", "images", "lr", "batch_norm_share", "start", "moving", "estimated", "chosen"]


def main(words=None):
    arguments = folders(__spec__.name, __doc__)
    arguments.add_argument("--families", nargs="+", choices=(*FAMILIES, SEVEN), default=(*FAMILIES, SEVEN))
    arguments.add_argument("--variants", nargs="+", choices=VARIANTS, default=["ancon-auto"], metavar="NAME")
    arguments.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments.add_argument("--images", type=int, default=500, help="most images of a cell (default: 500)")
    arguments.add_argument("--epochs", type=int, default=4, help="of an adaptation (default: 4)")
    arguments.add_argument("--table", action="store_true", help="print the table of OUT/harm.csv")
    args = arguments.parse_args(words)
    file = args.out / "harm.csv"
    if args.table:
        print(table(pd.read_csv(file)), end="")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    cells = Cells(args.data, args.out, args.images, args.epochs)
    rows_in_file = recorded(file, COLUMNS[:5])
    for cell in [cell._replace(seed=seed) for seed in args.seeds for cell in CELLS if cell.family in args.families]:
        for variant in args.variants:
            if (*cell, variant) not in rows_in_file:
                record(file, [result(cells, cell, variant)], COLUMNS)


def result(cells, cell, variant):
    task = cells.task(cell)
    settings = {"method": "ancon-auto", **task.settings, "batch_size": BATCH, **VARIANTS[variant]}
    if cell.family == "digits":
        settings.pop("views", None)  # nothing augments these images, so that there is no second view
    return {**cell._asdict(), "variant": variant, **scored_by_both(task, settings)}


def scored_by_both(task, settings):
    """Accuracy in percent after each epoch by the moving average of statistics, the estimated ones, and the chosen."""
    moving = []
    estimated = []
    renew = RunningStatistics.renew

    def score_both(statistics, epoch):
        state = copy.deepcopy(statistics.network.state_dict())
        moving.append(_accuracy(statistics.passes, task.labels))
        statistics.estimate(epoch)
        estimated.append(_accuracy(statistics.passes, task.labels))
        statistics.network.load_state_dict(state)
        renew(statistics, epoch)

    with mock.patch.object(RunningStatistics, "renew", score_both):
        metrics = adapt(task.model, task.images, labels=task.labels.tolist(), **settings).metrics
    first_epoch = metrics[1]
    return {
        "images": len(task.labels),
        "lr": first_epoch.get("lr"),
        "batch_norm_share": first_epoch.get("batch_norm_share"),
        "start": round(metrics[0]["accuracy"], 2),
        "moving": _words(moving),
        "estimated": _words(estimated),
        "chosen": _words([line["accuracy"] for line in metrics[1:]]),
    }


def _accuracy(passes, labels):
    passes.forget()
    outputs = passes.target()
    right = outputs.logits.argmax(1).cpu() == torch.from_numpy(labels)[outputs.indices]
    return 100 * float(right.float().mean())


def _words(accuracies):
    return " ".join(f"{accuracy:.2f}" for accuracy in accuracies)


def table(runs):
    """A row a run: accuracies after the last epoch."""
    last = {name: runs[name].astype(str).str.split().str[-1].astype(float) for name in COLUMNS[-3:]}
    harm = last["chosen"] - runs.start < -HARM
    columns = {
        "run": (runs.family + " " + runs.pair + ", " + runs.kind + ", seed " + runs.seed.astype(str), ""),
        "variant": (runs.variant, ""),
        "source model": (runs.start, ".1f"),
        **{name: (accuracies, ".1f") for name, accuracies in last.items()},
        f"more than {HARM} below the source model": (harm.map({True: "yes", False: ""}), ""),
    }
    return by_columns(columns)


if __name__ == "__main__":
    run(main)
