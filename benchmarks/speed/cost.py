"""Time and memory of an adaptation by network and number of images.

    python -m benchmarks.speed.cost FILE.csv [--only NETWORK ...]

Each case runs in a process of its own, on one thread: ``adapt`` with its defaults for one epoch, and
``predict``. The weights and the images are random. Times are processor times, which other programs lengthen little.
"""

import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import timm
import torch

from benchmarks import parser, run
from benchmarks.cifar10_c.networks import SHOWN, ResNet
from benchmarks.speed.images import draw_images
from benchmarks.tables import by_columns
from tllib_ancon import adapt, predict
from tllib_ancon.training.callbacks.scores import Scores
from tllib_ancon.training.callbacks.statistics import RenewedStatistics
from tllib_ancon.training.target_loaders import SAMPLE
from tllib_ancon.training.trainer import Trainer

RUNS = Path(__file__).resolve().parent / "cost.csv"
ABLATION = Path(__file__).resolve().parents[1] / "ablation" / "runs.csv"
FAMILIES = {
    "demo": ("`small_cnn`, 28 pixels", 6),
    "digits": ("LeNet of SHOT, 28 pixels", 3),
    "office31": ("MobileNetV2, 96 pixels", 3),
}
"""Family of the ablation -> network with the size of its images, and epochs of a run."""
SETTINGS: dict[str, Any] = {"batch_size": 64, "threads": 1, "workers": 0, "quiet": True}
"""The default batch, on one thread. Workers would load images in other processes, whose time does not count here."""
SHOWN_IMAGES = pd.DataFrame({"shown": [500, 2000]})
EPOCHS = 30
"""Default number of epochs."""


class Network(NamedTuple):
    """A network of the table.

    Attributes:
        name: in the table
        pixels: side of its images
        timm: its name in timm; empty for the ResNet-20 of CIFAR-10
        images: numbers of images that are measured
    """

    name: str
    pixels: int
    timm: str
    images: tuple[int, ...]


NETWORKS = (
    Network("ResNet-20", 32, "", (500, 2000)),
    Network("MobileNetV2", 224, "mobilenetv2_100", (64,)),
    Network("ResNet-18", 224, "resnet18", (64, 128)),
    Network("ResNet-50", 224, "resnet50", (64,)),
    Network("ViT-small/16", 224, "vit_small_patch16_224", (64,)),
)


class Stopwatch:
    """The processor time of the last call of each timed function, and the time of the whole."""

    def __init__(self):
        self.seconds = {}

    @contextmanager
    def timing(self, name):
        started = time.process_time()
        yield
        self.seconds[name] = time.process_time() - started

    def of(self, owner, function):
        """A patch that times a method of a class."""
        return mock.patch.object(owner, function, self.timing(function)(getattr(owner, function)))


def measure(network, count):
    """Seconds and gigabytes of one case; call it in a process of its own, whose peak memory is read."""
    stopwatch = Stopwatch()
    with drawn(network, count) as (model, images, settings):
        started = time.perf_counter()
        with ExitStack() as patches:
            patches.enter_context(stopwatch.of(Trainer, "_train_epoch"))
            patches.enter_context(stopwatch.of(RenewedStatistics, "after_epoch"))
            patches.enter_context(stopwatch.of(Scores, "score"))
            patches.enter_context(stopwatch.timing("adapt"))
            result = adapt(model, images, epochs=1, no_hflip=False, **settings)
        wall = time.perf_counter() - started
        with stopwatch.timing("predict"):
            predict(result.model, images, **settings)
    seconds = stopwatch.seconds
    scores = seconds["after_epoch"] + seconds["score"]
    return {
        "network": network.name,
        "pixels": network.pixels,
        "images": count,
        "start_s": seconds["adapt"] - seconds["_train_epoch"] - scores,
        "training_s": seconds["_train_epoch"],
        "scores_s": scores,
        "predict_s": seconds["predict"],
        "wall_of_adapt_s": wall,
        "memory_gb": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9,
    }


@contextmanager
def drawn(network, count):
    """A network and its settings, with a folder of JPEG files of 256 pixels, or arrays of 32 for that of CIFAR-10."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if not network.timm:
        images = np.random.default_rng(0).integers(256, size=(count, 32, 32, 3), dtype=np.uint8)
        yield ResNet(3), images, SETTINGS | SHOWN
        return
    with tempfile.TemporaryDirectory() as folder:
        draw_images(Path(folder), count)
        yield timm.create_model(network.timm), Path(folder), SETTINGS


def measured(networks):
    """The rows of all cases, each measured in a new process."""
    context = multiprocessing.get_context("spawn")
    for network in networks:
        for count in network.images:
            with ProcessPoolExecutor(1, mp_context=context) as process:
                yield process.submit(measure, network, count).result()


def epoch_seconds(case, images):
    """Time of an epoch on a number of images. Training grows with its steps, scores grow up to 1,024 images."""
    batch_size = SETTINGS["batch_size"]
    training = case.training_s * (images // batch_size) / (case.images // batch_size)
    return training + case.scores_s * sampled(images) / sampled(case.images)


def sampled(images):
    """Number of images in the sample that scores an epoch."""
    return np.minimum(images, SAMPLE)


def table():
    """A row for each network and number of images, from the run with the nearest number of images."""
    cases = pd.read_csv(RUNS).merge(SHOWN_IMAGES, how="cross")
    distances = (cases.images - cases.shown).abs()
    cases = cases.loc[distances.groupby([cases.network, cases.shown], sort=False).idxmin()]
    start = cases.start_s * sampled(cases.shown) / sampled(cases.images)
    prediction = cases.predict_s * cases.shown / cases.images
    costs = costs_of(cases, epoch_seconds(cases, cases.shown), start)
    return by_columns({**costs, "`predict`, s": (prediction, ",.1f"), "memory, GB": (cases.memory_gb, ".1f")})


def costs_of(cases, epoch, start):
    """The first columns of both tables, of the seconds of an epoch and those before the first."""
    return {
        "network": (cases.network + ", " + cases.pixels.astype(str) + " pixels", ""),
        "images": (cases.shown, ",d"),
        "an epoch, s": (epoch, ",.0f"),
        f"{EPOCHS} epochs, min": ((start + EPOCHS * epoch) / 60, ",.0f"),
    }


def table_of_the_ablation():
    """The median time on the wall of an epoch of ``ancon-auto``, scored on all images, of the largest test sets."""
    runs = pd.read_csv(ABLATION).query("study == 'parts' and variant == 'ancon-auto'")
    largest = runs[runs.images == runs.groupby("family").images.transform("max")]
    medians = largest.groupby("family")[["images", "seconds"]].median().loc[[*FAMILIES]]
    networks, epochs = zip(*FAMILIES.values(), strict=True)
    epoch = medians.seconds / np.array(epochs)
    return by_columns({"network": (networks, ""), "images": (medians.images, ",.0f"), "an epoch, s": (epoch, ".1f")})


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="FILE.csv", help="rows of other networks in it stay")
    names = [network.name for network in NETWORKS]
    arguments.add_argument("--only", nargs="+", choices=names, default=names, metavar="NETWORK", help=", ".join(names))
    args = arguments.parse_args(words)
    rows = []
    if args.out.is_file():
        earlier = pd.read_csv(args.out)
        rows = earlier[~earlier.network.isin(args.only)].to_dict("records")
    networks = [network for network in NETWORKS if network.name in args.only]
    for row in measured(networks):
        rows.append(row)
        print(row, flush=True)
        pd.DataFrame(rows).round(2).to_csv(args.out, index=False)


if __name__ == "__main__":
    run(main)
