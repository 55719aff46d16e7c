"""This package beside others on the same work: accuracy, speed, memory, start, and what a user writes.

Each run is a process of its own with one thread; runs take turns, every other time backwards. Seconds are of the
processor, from the start of the process to the first training step, and from there to the predictions. Research code
is not fetched: ``--code`` names a folder with its repositories, ``tent`` (DequanWang/tent), ``ancon``
(tjoo512/ancon) and ``shot`` (tim-learn/SHOT), and what is not there is skipped.
"""

import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from benchmarks import parser
from benchmarks.race.works import PACKAGES, WORKS
from benchmarks.speed.timing import median_interval
from benchmarks.tables import markdown
from tllib_ancon import expected_calibration_error

SCRIPTS = Path(__file__).parent / "scripts"
KILL = "kill"
"""Case of a run that was killed in its last epoch and begun again."""
SHOWN = {
    "accuracy_before": ("accuracy before", "mean", 1),
    "accuracy_after": ("after", "mean", 1),
    "ece_before": ("ECE before", "mean", 3),
    "ece_after": ("after", "mean", 3),
    "images_s": ("images/s", "median", 0),
    "peak_mb": ("peak, MB", "median", 0),
    "first_step_processor_s": ("to the first step, s", "median", 1),
    "first_step_s": ("on the wall", "median", 1),
}
YES_NO = {True: "yes", False: "no"}
HEADER = ["", *(title for title, *_ in SHOWN.values()), "ours / its", "95 %", "lines", "continues", "predicts"]


def main(words=None):
    arguments = parser("benchmarks.race", __doc__)
    arguments.add_argument("work", choices=WORKS)
    arguments.add_argument(
        "data", type=Path, help="folder with cifar10/, office31/, digits/ and the MobileNetV2's weights"
    )
    arguments.add_argument("--code", type=Path, default="code", metavar="DIR", help="research code, see above")
    arguments.add_argument(
        "--out", type=Path, default="runs/race/race.csv", metavar="FILE", help="gets a row a run, which lies beside it"
    )
    arguments.add_argument("--only", nargs="+", metavar="TITLE", help="rows; by default all")
    arguments.add_argument("--images", type=int, default=2000, metavar="N", help="of CIFAR-10-C")
    arguments.add_argument("--epochs", type=int, default=3, metavar="N")
    arguments.add_argument("--repeats", type=int, default=1, metavar="N", help="seeds; 0 for the table of FILE alone")
    arguments.add_argument("--kill", action="store_true", help="only find out who continues after a kill")
    args = arguments.parse_args(words)
    runs = work_folder(args)
    runs.mkdir(parents=True, exist_ok=True)
    entries, cases_of = WORKS[args.work]
    entries = [entry for entry in entries if args.only is None or entry.title in args.only]
    cases = list(cases_of(args.data, runs, args.images))[: 1 if args.kill else None]
    rows = pd.read_csv(args.out).to_dict("records") if args.out.is_file() else []
    for turn, (seed, case) in enumerate(product(range(args.repeats), cases)):
        for entry in entries[:: -1 if turn % 2 else 1]:
            fixed = {"work": args.work, "title": entry.title, "case": case.name, "seed": seed, "epochs": args.epochs}
            found = (killed if args.kill else run)(entry, case, args, seed)
            rows.append({**fixed, "load": round(os.getloadavg()[0], 1), **found})
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(args.out, index=False, float_format="%.5g")
    print(table(pd.DataFrame(rows), args.work))


def run(entry, case, args, seed, log="", kill=0):
    """Its numbers, or ``error``."""
    if entry.place not in ("", *PACKAGES) and not (args.code / entry.place).is_dir():
        return {"error": f"skipped: there is no {args.code / entry.place}"}
    out = work_folder(args) / f"{entry.script}-{time.time_ns()}"
    task = {"epochs": args.epochs, "batch_size": 64, "seed": seed, "method": entry.method, "options": {}}
    task |= {"code": str(args.code.resolve()), "log": log or f"{out}-log", **case.task, **entry.own}
    try:
        python = environment(args.out.parent / "pip", entry.place) if entry.place in PACKAGES else sys.executable
        words = [python, "-W", "ignore", "-m", "benchmarks.race.measure", entry.script, json.dumps(task), str(out)]
        _called([*words, str(time.time()), str(kill)])
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


def killed(entry, case, args, seed):
    """Of a whole run and of one after a kill at its last step: how many steps each makes."""
    whole = run(entry, case, args, seed)
    if not whole.get("steps"):
        return {"case": KILL, "error": whole.get("error", "no steps")}
    log = str(work_folder(args) / f"{KILL}-{time.time_ns()}")
    run(entry, case, args, seed, log, kill=whole["steps"] - 1)
    again = run(entry, case, args, seed, log)
    return {"case": KILL, "steps": whole["steps"], "left": again.get("steps"), "error": again.get("error")}


def environment(folder, package):
    """The interpreter that has the package; made where there is none. torch is this interpreter's own."""
    home = folder.resolve() / package
    python, finished = str(home / "bin" / "python"), home / "installed"
    if not finished.is_file():
        venv.create(home, with_pip=True, clear=True)
        site = sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})
        Path(site, "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        _called([python, "-m", "pip", "install", "-q", *PACKAGES[package]])
        finished.touch()
    return python


def _called(words):
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    subprocess.run(words, check=True, capture_output=True, text=True, env=os.environ | threads)


def table(runs, work):
    """A row an entry; the ratios are of the same case and seed."""
    runs = runs[runs.work == work].reindex(columns=runs.columns.union(["left", "error", *SHOWN]))
    after_kill = runs[(runs.case == KILL) & runs.left.notna()]
    runs = runs[runs.case != KILL]
    rows = []
    for entry in WORKS[work][0]:
        own = runs[runs.title == entry.title]
        if own.empty:
            continue
        title = entry.title
        if own.images_s.isna().all():
            title += f": {own.error.iloc[0]}"
        values = [f"{own[name].agg(how):.{digits}f}" for name, (_, how, digits) in SHOWN.items()]
        pairs = runs[runs.title == entry.beside].merge(own, on=["case", "seed"])
        ratios = (pairs.images_s_x / pairs.images_s_y).dropna().tolist() or [np.nan]
        interval = " – ".join(f"{value:.2f}" for value in median_interval(ratios))
        lines = sum(1 for line in (SCRIPTS / f"{entry.script}.py").read_text().splitlines() if line.strip())
        own_kills = after_kill[after_kill.title == entry.title]
        continues = "–"
        if len(own_kills):
            continues = YES_NO[bool((own_kills.left < own_kills.steps).all())]
        predicts = YES_NO[not entry.asks]
        rows.append([title, *values, f"{np.median(ratios):.2f}", interval, lines, continues, predicts])
    return markdown(HEADER, rows, numbers=True).replace("nan – nan", "–").replace(" nan ", " – ")


if __name__ == "__main__":
    main()
