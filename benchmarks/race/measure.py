"""One script in a process of its own: ``python -m benchmarks.race.measure SCRIPT TASK OUT STARTED``.

``TASK`` is JSON, ``OUT`` receives the probabilities (.npy) and the numbers (.json), ``STARTED`` is when the process was
asked for.
"""

import importlib
import json
import re
import sys
import time
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks.cifar10_c.networks import batches, load


class Task(SimpleNamespace):
    """What a script is given: ``epochs``, ``batch_size``, ``seed``, ``method`` of the package, the folder ``code``, the
    run's own folder ``log``, and network and images; ``accuracies`` (of epochs) are recorded."""

    @cached_property
    def network(self):
        return load(self.weights)

    @cached_property
    def pixels(self):
        """(N, 32, 32, 3) bytes."""
        return np.load(self.images)

    @cached_property
    def tensors(self):
        """Normalised as the network expects, (N, 3, 32, 32)."""
        return torch.cat([*batches(self.pixels)])


def clocks():
    """Time on the wall, and processor time of this process since its start."""
    return np.array([time.time(), time.process_time()])


def main(script, settings, out, started):
    ends = []
    register_optimizer_step_post_hook(lambda *_: ends.append(clocks()))
    torch.set_num_threads(1)
    task = Task(accuracies=[], **json.loads(settings))
    torch.manual_seed(task.seed)
    race = importlib.import_module(f"benchmarks.race.scripts.{script}").race
    called = clocks()
    probabilities = race(task)
    ended = clocks()
    steps = len(ends)
    first_step = ends[0] if steps else np.full(2, np.nan)
    seconds = ended - (first_step if steps else called)
    start = first_step - [float(started), 0]
    images = task.epochs * task.num_images
    if steps:
        images = min(steps * task.batch_size, images) - task.batch_size
    peak = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())  # getrusage's has the parent's in it
    names = ("seconds", "processor_s", "first_step_s", "first_step_processor_s")
    numbers = dict(zip(names, [*seconds, *start], strict=True)) | {"steps": steps, "images": images}
    numbers |= {"peak_mb": int(peak[0]) / 1e3, "accuracies": " ".join(f"{value:.2f}" for value in task.accuracies)}
    np.save(f"{out}.npy", torch.as_tensor(probabilities).detach().numpy())
    Path(f"{out}.json").write_text(json.dumps(numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
