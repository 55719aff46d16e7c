"""This package beside others on the same work: accuracy, speed and memory.

Each run is a process of its own with one thread; runs take turns, every other time backwards. Seconds are of the
processor, from the start of the process to the first training step, and from there to the predictions. Research code
is not fetched: ``--code`` names a folder with its repositories, ``tent`` (DequanWang/tent) and ``ancon``
(tjoo512/ancon). What is not there, or not installed, is a row with an error.
"""

import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks import parser
from benchmarks.race.works import WORKS
from benchmarks.speed.timing import median_interval
from benchmarks.tables import markdown
from tllib_ancon import expected_calibration_error

SHOWN = {
    "accuracy_before": ("accuracy before", "mean", 1),
    "accuracy_after": ("after", "mean", 1),
    "ece_before": ("ECE before", "mean", 3),
    "ece_after": ("after", "mean", 3),
    "images_s": ("images/s", "median", 0),
    "peak_mb": ("peak, MB", "median", 0),
    "first_step_processor_s": ("to the first step, s", "median", 1),
}
HEADER = ["", *(title for title, *_ in SHOWN.values()), "ours / its", "95 %"]


def main(words=None):
    arguments = parser("benchmarks.race", __doc__)
    arguments.add_argument("work", choices=WORKS)
    arguments.add_argument("data", type=Path, help="folder with cifar10/, office31/ and the MobileNetV2's weights")
    arguments.add_argument("--code", type=Path, default="code", metavar="DIR", help="research code, see above")
    arguments.add_argument(
        "--out", type=Path, default="runs/race/race.csv", metavar="FILE", help="gets a row a run, which lies beside it"
    )
    arguments.add_argument("--only", nargs="+", metavar="TITLE", help="rows; by default all")
    arguments.add_argument("--images", type=int, default=2000, metavar="N", help="of CIFAR-10-C")
    arguments.add_argument("--epochs", type=int, default=3, metavar="N")
    arguments.add_argument("--repeats", type=int, default=1, metavar="N", help="seeds")
    args = arguments.parse_args(words)
    work = work_folder(args)
    work.mkdir(parents=True, exist_ok=True)
    entries, cases_of = WORKS[args.work]
    entries = [entry for entry in entries if args.only is None or entry.title in args.only]
    cases = list(cases_of(args.data, work, args.images))
    rows = pd.read_csv(args.out).to_dict("records") if args.out.is_file() else []
    for turn, (seed, case) in enumerate(product(range(args.repeats), cases)):
        for entry in entries[:: -1 if turn % 2 else 1]:
            planned = {"work": args.work, "title": entry.title, "case": case.name, "seed": seed, "epochs": args.epochs}
            load = round(os.getloadavg()[0], 1)
            rows.append({**planned, "load": load, **run(entry, case, args, seed)})
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(args.out, index=False, float_format="%.5g")
    print(table(pd.DataFrame(rows), args.work))


def run(entry, case, args, seed):
    """Its numbers, or ``error``."""
    out = work_folder(args) / f"{entry.script}-{time.time_ns()}"
    task = {"epochs": args.epochs, "batch_size": 64, "seed": seed, "method": entry.method}
    task |= {"code": str(args.code.resolve()), "log": f"{out}-log", **case.task, **entry.settings}
    words = [entry.script, json.dumps(task), str(out), str(time.time())]
    try:
        measured(words)
    except subprocess.CalledProcessError as error:
        return {"error": (error.stderr.strip().splitlines() or [f"status {error.returncode}"])[-1]}
    numbers = json.loads(Path(f"{out}.json").read_text())
    for name, probabilities in (("before", case.before), ("after", torch.from_numpy(np.load(f"{out}.npy")))):
        numbers[f"accuracy_{name}"] = 100 * (probabilities.argmax(1) == case.labels).double().mean().item()
        numbers[f"ece_{name}"] = expected_calibration_error(probabilities, case.labels)
    return {**numbers, "images_s": numbers["images"] / numbers["processor_s"]}


def work_folder(args):
    """Of what runs keep."""
    return args.out.resolve().parent / "work"


def measured(words):
    """Run ``benchmarks.race.measure`` in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.race.measure", *words]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | threads)


def table(runs, work):
    """A row an entry that ran; the ratios are of the same case and seed."""
    runs = runs[(runs.work == work) & runs.images_s.notna()]
    rows = []
    for entry in WORKS[work][0]:
        of_entry = runs[runs.title == entry.title]
        if of_entry.empty:
            continue
        values = [f"{of_entry[name].agg(how):.{digits}f}" for name, (_, how, digits) in SHOWN.items()]
        pairs = runs[runs.title == entry.beside].merge(of_entry, on=["case", "seed"])
        ratios = pairs.images_s_x / pairs.images_s_y
        interval = " – ".join(f"{value:.2f}" for value in median_interval(ratios))
        rows.append([entry.title, *values, f"{np.median(ratios):.2f}", interval])
    return markdown(HEADER, rows, numbers=True).replace(" nan ", " – ")


if __name__ == "__main__":
    main()
