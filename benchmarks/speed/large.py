"""What a target of a million pictures costs, beside one of ten thousand: start-up, a step, memory, continuing.

Times are of the processor, in one process that does everything: what else runs on the machine does not lengthen them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

from benchmarks.speed.epochs import Scene
from benchmarks.speed.timing import Row, row

SIZES = (10_000, 1_000_000)
NUM_CLASSES, SIDE, BATCH, STEPS = 1000, 64, 64, 50
HOLD_OUT = 0.01
"""Share of the pictures that selects the epoch."""

FILES = 1000
"""Picture files, and links to their folder, so that a million paths need few of them."""

Figures = dict[str, float]
"""Name of a row, its unit behind a comma -> seconds, bytes or a count."""

UNITS = {"s": 1.0, "ms": 1e3, "MB": 1e-6, "pictures": 1.0}
LIMITS = {("a list: opened", SIZES[-1]): 30, ("a list: memory", SIZES[-1]): 150}
"""What is asked for, in the row's unit."""


class Enough(Exception):
    """Ends an adaptation after the steps that are measured."""


@dataclass
class Clock:
    """When the network was asked for what.

    Attributes:
        steps: training steps after which it says that this is enough
        started: of each training step, in processor seconds
        evaluated: images in evaluation mode before the first training step
    """

    steps: int = STEPS
    started: list[float] = field(default_factory=list)
    evaluated: int = 0

    def tick(self, learns: bool, images: int) -> None:
        if not learns:
            self.evaluated += 0 if self.started else images
            return
        if len(self.started) == self.steps:
            raise Enough
        self.started.append(time.process_time())

    def __deepcopy__(self, memo: object) -> Clock:
        return self


class Network(nn.Module):
    """The smallest network with batch-norm, so that what is measured is what surrounds it."""

    def __init__(self, clock: Clock, num_classes: int = NUM_CLASSES):
        super().__init__()
        self.clock = clock
        self.features = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 8 * 8, 64), nn.BatchNorm1d(64))
        self.head = nn.Linear(64, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        self.clock.tick(torch.is_grad_enabled(), len(images))
        logits: Tensor = self.head(self.features(images))
        return logits


class Drawn(Dataset[Tensor]):
    """Pictures of 64² made when they are asked for, of which nothing is kept."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        generator = np.random.Generator(np.random.SFC64(index))
        return torch.from_numpy(generator.random((3, SIDE, SIDE), dtype=np.float32))


def measure(only: Sequence[str] = ()) -> Iterator[Row]:
    """Each number in a process of its own, at both sizes; the cache of a million pictures of 64² takes 12 GB of the
    folder for temporary files.

    Args:
        only: of :data:`MEASUREMENTS`. Default: all
    """
    with tempfile.TemporaryDirectory() as folder:
        for what in only or MEASUREMENTS:
            title, work = MEASUREMENTS[what]
            for count in SIZES:
                for name, value in in_a_process(work, Path(folder), count).items():
                    name, _, unit = f"{title}: {name}".rpartition(", ")
                    limits = {"at_most": LIMITS[name, count]} if (name, count) in LIMITS else {}
                    yield row(f"{name}, N = {count:,}", [value * UNITS[unit]], unit, **limits)


def in_a_process(work: Callable[..., Figures], *arguments: Any) -> Figures:
    """Run it where nothing else has taken memory before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_alone, work, *arguments).result()


def _alone(work: Callable[..., Figures], *arguments: Any) -> Figures:
    """After a small adaptation, so that what libraries take is not counted."""
    torch.set_num_threads(1)
    _adapt(Drawn(10 * BATCH), Clock(2))
    return work(*arguments)


def open_list(folder: Path, count: int) -> Figures:
    """Of image files, in TLLib's form."""
    from tllib_ancon.data.open import open_domain

    write_list(folder, count)
    before, started = memory(), time.process_time()
    domain = open_domain(folder, "ImageList", [f"target{count}"])
    seconds = time.process_time() - started
    assert len(domain) == count
    return {"opened, s": seconds, "memory, MB": memory() - before}


def open_cache(folder: Path, count: int) -> Figures:
    """Of image files, in a file that takes no room on disk yet."""
    from tllib_ancon.data.cache import cached
    from tllib_ancon.data.open import open_domain
    from tllib_ancon.data.transforms import Resizing

    write_list(folder, count)
    domain = open_domain(folder, "ImageList", [f"target{count}"])
    before, started = memory(), time.process_time()
    kept = cached(domain, folder / f"opened{count}", [Resizing(SIDE)])
    seconds = time.process_time() - started
    assert len(kept) == count
    return {"opened, s": seconds, "memory, MB": peak_memory() - before}


def adapt_some_steps(folder: Path, count: int) -> Figures:
    """AnCon on pictures that are made on the fly: until the first step, a step, and what is taken by then."""
    return _adapt(Drawn(count))


def adapt_with_cache(folder: Path, count: int) -> Figures:
    """The same on image files that are decoded once and kept."""
    write_list(folder, count)
    files: dict[str, Any] = {"root": str(folder), "data": "ImageList", "target": (f"target{count}",)}
    sizes: dict[str, Any] = {"train_resizing": "res.", "val_resizing": "res.", "resize_size": SIDE, "image_size": SIDE}
    pictures = {**sizes, "norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3, "cache": str(folder / f"cache{count}")}
    first, again = (_adapt(**files, **pictures) for _ in range(2))
    return {**first, "until the first step with a cache that is there, s": again["until the first step, s"]}


def continue_after_an_epoch(folder: Path, count: int) -> Figures:
    """An epoch in a run directory, ended in the second one, and the same call again."""
    log = str(folder / f"run{count}")
    per_epoch = round(count * (1 - HOLD_OUT)) // BATCH
    _adapt(Drawn(count), Clock(per_epoch + 1), epochs=2, log=log)
    written = sum(path.stat().st_size for path in Path(log).rglob("*") if path.is_file())
    return {**_adapt(Drawn(count), epochs=2, log=log), "run directory, MB": written}


def predict_all(folder: Path, count: int) -> Figures:
    """Every answer, of ten classes."""
    from tllib_ancon import predict

    network, before, started = Network(Clock(0), num_classes=10), memory(), time.process_time()
    answers = predict(network, Drawn(count), batch_size=BATCH, workers=0)
    seconds = time.process_time() - started
    beside = peak_memory() - before - answers.probabilities.nbytes
    return {"a picture, ms": seconds / count, "memory beside the answers, MB": beside}


def write_predictions(folder: Path, count: int) -> Figures:
    """The command: a small network of 31 classes says of image files what they are, a row a picture."""
    from tllib_ancon.cli.main import main

    write_list(folder, count)
    checkpoint, rows = folder / "small_cnn.pth", folder / f"predictions{count}.csv"
    torch.save(Scene("", "small_cnn", SIDE, 0, 0).model().state_dict(), checkpoint)
    images = f"{folder} --data ImageList --target target{count} --allow-outside-root --workers 0 --quiet --out {rows}"
    model = f"--checkpoint {checkpoint} --arch small_cnn --val-resizing res. --resize-size {SIDE}"
    before, started = memory(), time.process_time()
    assert main(["predict", *images.split(), *model.split()]) == 0
    return {"a picture, ms": (time.process_time() - started) / count, "memory, MB": peak_memory() - before}


MEASUREMENTS: dict[str, tuple[str, Callable[[Path, int], Figures]]] = {
    "list": ("a list", open_list),
    "opened-cache": ("a cache", open_cache),
    "adapt": ("adapt", adapt_some_steps),
    "continue": ("adapt that continues", continue_after_an_epoch),
    "cache": ("adapt with --cache", adapt_with_cache),
    "predict": ("predict", predict_all),
    "file": ("predict to a file", write_predictions),
}
"""Name -> title of its rows, and what makes them."""


def _adapt(images: Any = None, clock: Clock | None = None, **settings: Any) -> Figures:
    from tllib_ancon import adapt

    clock = clock or Clock()
    torch.manual_seed(0)
    network = Network(clock)
    before, started = memory(), time.process_time()
    options = {"method": "ancon", "epochs": 1, "batch_size": BATCH, "hold_out": HOLD_OUT, "workers": 0, "quiet": True}
    with contextlib.suppress(Enough):
        adapt(network, images, **{**options, **settings})
    return {
        "until the first step, s": clock.started[0] - started,
        "scored before it, pictures": float(clock.evaluated),
        "a step, ms": median(np.diff(clock.started).tolist()),
        "memory, MB": peak_memory() - before,
    }


def write_list(root: Path, count: int) -> None:
    """``image_list/target<count>.txt`` of as many paths, by links to one folder of :data:`FILES` pictures."""
    folder = root / "pictures"
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for number in range(FILES):
            pixels = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:04d}.png", compress_level=1)
    for number in range(-(-count // FILES)):
        if not (link := root / f"link{number:04d}").exists():
            link.symlink_to(folder, target_is_directory=True)
    (root / "image_list").mkdir(exist_ok=True)
    (root / "image_list" / "classes.txt").write_text("".join(f"class {label}\n" for label in range(NUM_CLASSES)))
    with open(root / "image_list" / f"target{count}.txt", "w", encoding="utf-8") as file:
        for number in range(count):
            file.write(f"link{number // FILES:04d}/{number % FILES:04d}.png {number % NUM_CLASSES}\n")


def memory() -> float:
    """Resident bytes of this process; the peak is counted from here."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_memory() -> float:
    """The most resident bytes since :func:`memory` was asked for."""
    return _status("VmHWM")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line for line in lines if line.startswith(name)).split()[1])
