"""Nine small adaptations whose weights and metrics must not change while the code is rearranged.

Record before a change, compare after it::

    python -m tests.support.nine_runs record nine.json
    python -m tests.support.nine_runs compare nine.json           # exit status 1 if any run differs
    python -m tests.support.nine_runs compare nine.json gce shot  # some of the runs

A record holds a digest of all weights and buffers, and the numbers of each epoch but for its speed. It is valid on the
machine, and with the PyTorch, that made it. Metrics that only one side has are no difference.

"rate-of-1" is the default method with ``lr=1.0``, a hundred times SGD's default. "default"
stores a run directory. "two-processes" reads image files and runs on the command line.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image

import tllib_ancon
from tests.support.falls import stripes
from tests.support.networks import CLASSES, PREPROCESSING, Net, fit, normalised

HALF = PREPROCESSING["norm_mean"]
SETTINGS = {**PREPROCESSING, "epochs": 2, "batch_size": 16, "seed": 0, "threads": 1, "workers": 0, "quiet": True}
IN_MEMORY = {
    "gce": {"method": "gce+ancon"},
    "shot": {"method": "shot"},
    "nrc": {"method": "nrc+ancon"},
    "adabn": {"method": "adabn"},
    "elr": {"method": "elr"},
    "rate-of-1": {"lr": 1.0},
}
NAMES = ("default", *IN_MEMORY, "teacher", "two-processes")
OF_SPEED = ("second", "time", "speed")
TWO_PROCESSES = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "tllib_ancon", "adapt")


def source_model(epochs=300):
    """A network that has learned bright stripes, and is sure of them."""
    images = normalised(stripes(128, 1.0, seed=1))
    return fit(Net(), [(images, torch.arange(128) % CLASSES)] * epochs)


def run(name, folder):
    """Weights and metrics of a run. The folder is empty."""
    images = stripes(96, 0.4, seed=2)
    labels = [number % CLASSES for number in range(96)]
    if name == "two-processes":
        return run_in_two_processes(images, labels, folder)
    settings = dict(IN_MEMORY.get(name, {}))
    if name == "default":
        settings["log"] = folder / "run"
    if name == "teacher":
        settings["teacher"] = source_model(epochs=400)
    result = tllib_ancon.adapt(source_model(), images, labels=labels, **SETTINGS, **settings)
    return result.model.state_dict(), result.metrics


def run_in_two_processes(images, labels, folder):
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / "images" / str(label) / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    torch.save(source_model().state_dict(), folder / "source.pth")
    words = [folder / "images", "--model", "tests.support.networks:Net", "--checkpoint", folder / "source.pth"]
    words += ["--image-size", 32, "--norm-mean", *HALF, "--norm-std", *HALF, "--log", folder / "run"]
    words += ["--epochs", 2, "--batch-size", 8, "--seed", 0, "--threads", 1, "--workers", 0, "--quiet"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *TWO_PROCESSES, *map(str, words)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    weights = torch.load(folder / "run" / "checkpoints" / "best.pth", weights_only=True)
    return weights, [json.loads(line) for line in lines]


def digest(weights):
    total = hashlib.sha256()
    for key in sorted(weights):
        total.update(key.encode())
        total.update(weights[key].contiguous().numpy().tobytes())
    return total.hexdigest()


def numbers_of(metrics):
    """Each number of an epoch by its name; those of a list by name and position."""
    numbers = {}
    for name, value in metrics.items():
        if any(word in name for word in OF_SPEED):
            continue
        if isinstance(value, (list, tuple)):
            numbers |= {f"{name}[{position}]": repr(item) for position, item in enumerate(value)}
        elif isinstance(value, (int, float)):
            numbers[name] = repr(value)
    return numbers


def record(name):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        weights, metrics = run(name, Path(folder))
    return {"weights": digest(weights), "epochs": [numbers_of(epoch) for epoch in metrics]}


def compare(name, before):
    """Print whether a run is the recorded one, and how the numbers that both have differ."""
    after = record(name)
    different = [] if before["weights"] == after["weights"] else ["weights"]
    for number, (old, new) in enumerate(zip(before["epochs"], after["epochs"], strict=True)):
        different += [f"epoch {number} {key}" for key in sorted(old.keys() & new.keys()) if old[key] != new[key]]
    print(f"{name}: {', '.join(different) or 'equal'}", flush=True)
    return not different


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=f"Runs to make: {', '.join(NAMES)}.")
    arguments = parser.parse_args()
    if arguments.action == "record":
        arguments.file.write_text(json.dumps({name: record(name) for name in arguments.names}, indent=1) + "\n")
        return 0
    recorded = json.loads(arguments.file.read_text())
    equal = [compare(name, recorded[name]) for name in arguments.names]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
