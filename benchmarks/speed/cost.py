"""Time and memory of an adaptation by network and number of images.

    python -m benchmarks.speed.cost FILE.csv [--only NETWORK ...] [--check]

Each case runs in a process of its own, on one thread: ``check``, ``adapt`` with its defaults for one epoch, and
``predict``. The weights and the images are random. Times are processor times, which other programs lengthen little.
"""

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks import parser, run
from benchmarks.cifar10_c.networks import SHOWN, ResNet
from benchmarks.speed.images import draw_domain
from benchmarks.tables import markdown
from tllib_ancon import adapt, check, predict
from tllib_ancon.preflight import rehearsal
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.loop import TrainingLoop
from tllib_ancon.training.running_statistics import STATISTICS_SAMPLE, RunningStatistics
from tllib_ancon.training.target_loaders import SAMPLE

RUNS = Path(__file__).resolve().parent / "cost.csv"
CHECKED = Path(__file__).resolve().parent / "cost_check.csv"
ABLATION = Path(__file__).resolve().parents[1] / "ablation" / "runs.csv"
FAMILIES = {
    "demo": ("`small_cnn`, 28 pixels", 6),
    "digits": ("LeNet of SHOT, 28 pixels", 3),
    "office31": ("MobileNetV2, 96 pixels", 3),
}
"""Family of the ablation -> network with the size of its images, and epochs of a run."""
SETTINGS: dict[str, Any] = {"batch_size": 64, "threads": 1, "workers": 0, "quiet": True}
"""The default batch, on one thread. Workers would load images in other processes, whose time does not count here."""
SHOWN_IMAGES = (500, 2000)
CHECKED_IMAGES = 32
EPOCHS = 30
"""Default number of epochs."""


@dataclass(frozen=True)
class Network:
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

    def create(self) -> nn.Module:
        if not self.timm:
            return ResNet(3)
        import timm

        return timm.create_model(self.timm, pretrained=False)


NETWORKS = (
    Network("ResNet-20", 32, "", (500, 2000)),
    Network("MobileNetV2", 224, "mobilenetv2_100", (64,)),
    Network("ResNet-18", 224, "resnet18", (64, 128)),
    Network("ResNet-50", 224, "resnet50", (64,)),
    Network("ViT-small/16", 224, "vit_small_patch16_224", (64,)),
)


class Stopwatch:
    """The processor time of the last call of each timed function, and the time of the whole."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[name] = time.process_time() - started

    def of(self, owner: type, function: str) -> Any:
        """A patch that times a method of a class."""
        original: Callable[..., Any] = getattr(owner, function)

        @wraps(original)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            with self.timing(function):
                return original(*arguments, **keywords)

        return mock.patch.object(owner, function, timed)


def measure(network: Network, count: int) -> dict[str, Any]:
    """Seconds and gigabytes of one case; call it in a process of its own, whose peak memory is read."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = network.create()
    settings = settings_of(network)
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        images = draw_images(network, count, Path(folder))
        estimate = estimated_epoch(model, images, settings)
        started = time.perf_counter()
        with ExitStack() as patches:
            patches.enter_context(stopwatch.of(TrainingLoop, "_train_epoch"))
            patches.enter_context(stopwatch.of(RunningStatistics, "renew"))
            patches.enter_context(stopwatch.of(Adaptation, "_score_model"))
            patches.enter_context(stopwatch.timing("adapt"))
            result = adapt(model, images, epochs=1, no_hflip=False, **settings)
        wall = time.perf_counter() - started
        with stopwatch.timing("predict"):
            predict(result.model, images, **settings)
    seconds = stopwatch.seconds
    scores = seconds["renew"] + seconds["_score_model"]
    return {
        "network": network.name,
        "pixels": network.pixels,
        "images": count,
        "start_s": round(seconds["adapt"] - seconds["_train_epoch"] - scores, 2),
        "training_s": round(seconds["_train_epoch"], 2),
        "scores_s": round(scores, 2),
        "predict_s": round(seconds["predict"], 2),
        "wall_of_adapt_s": round(wall, 1),
        "memory_gb": round(peak_memory() / 1e9, 2),
        "check_epoch_s": round(estimate["seconds"], 2),
        "check_gb": round(estimate["bytes"] / 1e9, 2),
    }


def estimate(network: Network) -> dict[str, Any]:
    """What ``check`` estimates from two training steps: processor time for an image, and memory."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        images = draw_images(network, CHECKED_IMAGES, Path(folder))
        values = estimated_epoch(network.create(), images, settings_of(network))
    step = values["step_seconds"] + values["load_seconds"]
    prediction = (values["seconds"] - values["steps"] * step) / values["predicted_images"]
    return {
        "network": network.name,
        "pixels": network.pixels,
        "training_ms": round(1000 * step / values["batch_size"], 2),
        "prediction_ms": round(1000 * prediction, 2),
        "samples": values["predicted_images"] // CHECKED_IMAGES,
        "memory_gb": round(values["bytes"] / 1e9, 2),
    }


def settings_of(network: Network) -> dict[str, Any]:
    return SETTINGS if network.timm else SETTINGS | SHOWN


def draw_images(network: Network, count: int, folder: Path) -> Any:
    """A folder of JPEG files of 256 pixels, or arrays of 32 pixels for the network of CIFAR-10."""
    if not network.timm:
        return np.random.default_rng(0).integers(256, size=(count, 32, 32, 3), dtype=np.uint8)
    draw_domain(folder, count)
    return folder


def estimated_epoch(model: nn.Module, images: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The estimate of ``check``, in processor time."""
    clock = SimpleNamespace(perf_counter=time.process_time)
    with mock.patch.object(rehearsal, "time", clock):
        return check(model, images, no_hflip=False, **settings).cost.values


def peak_memory() -> int:
    """Bytes of this process, at its peak."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(networks: Sequence[Network]) -> Iterator[dict[str, Any]]:
    """The rows of all cases, each measured in a new process."""
    context = multiprocessing.get_context("spawn")
    for network in networks:
        for count in network.images:
            with ProcessPoolExecutor(1, mp_context=context) as process:
                yield process.submit(measure, network, count).result()


def epoch_seconds(case: Any, images: int) -> float:
    """Time of an epoch on a number of images. Training grows with its steps, scores grow up to 1,024 images."""
    batch_size = SETTINGS["batch_size"]
    training = case.training_s * (images // batch_size) / (case.images // batch_size)
    return training + case.scores_s * sampled(images) / sampled(case.images)


def sampled(images: int) -> int:
    """Number of images in the sample that scores an epoch."""
    return min(images, SAMPLE)


def table() -> str:
    """A row for each network and number of images, from the run with the nearest number of images."""
    cases = pd.read_csv(RUNS)
    rows = []
    for name, of_network in cases.groupby("network", sort=False):
        for images in SHOWN_IMAGES:
            case = of_network.loc[(of_network.images - images).abs().idxmin()]
            epoch = epoch_seconds(case, images)
            start = case.start_s * sampled(images) / sampled(case.images)
            minutes = (start + EPOCHS * epoch) / 60
            prediction = case.predict_s * images / case.images
            network = f"{name}, {case.pixels} pixels"
            row = [network, f"{images:,}", f"{epoch:,.0f}", f"{minutes:,.0f}", f"{prediction:,.1f}"]
            rows.append([*row, f"{case.memory_gb:.1f}"])
    header = ["network", "images", "an epoch, s", f"{EPOCHS} epochs, min", "`predict`, s", "memory, GB"]
    return markdown(header, rows, numbers=True)


def table_of_check() -> str:
    """The estimates of ``check``, for other numbers of images.

    An epoch predicts a sample of them, and a second one for batch-norm statistics if the network has any.
    """
    rows = []
    for case in pd.read_csv(CHECKED).itertuples():
        for images in SHOWN_IMAGES:
            trained = images // SETTINGS["batch_size"] * SETTINGS["batch_size"]
            predicted = sampled(images) + (case.samples - 1) * min(images, STATISTICS_SAMPLE)
            seconds = (trained * case.training_ms + predicted * case.prediction_ms) / 1000
            minutes = EPOCHS * seconds / 60
            row = [f"{case.network}, {case.pixels} pixels", f"{images:,}", f"{seconds:,.0f}", f"{minutes:,.0f}"]
            rows.append([*row, f"{images * case.prediction_ms / 1000:,.0f}", f"{case.memory_gb:.1f}"])
    header = ["network", "images", "an epoch, s", f"{EPOCHS} epochs, min", "`predict`, s", "a step, GB"]
    return markdown(header, rows, numbers=True)


def table_of_the_ablation() -> str:
    """The median time on the wall of an epoch of ``ancon-auto``, scored on all images, of the largest test sets."""
    runs = pd.read_csv(ABLATION).query("study == 'parts' and variant == 'ancon-auto'")
    rows = []
    for family, (network, epochs) in FAMILIES.items():
        of_family = runs[runs.family == family]
        images = of_family.images.max()
        seconds = of_family.seconds[of_family.images == images].median() / epochs
        rows.append([network, f"{images:,.0f}", f"{seconds:.1f}"])
    return markdown(["network", "images", "an epoch, s"], rows, numbers=True)


def estimates() -> str:
    """The estimate of ``check`` beside the measured epoch of each case."""
    rows = []
    for case in pd.read_csv(RUNS).itertuples():
        epoch = case.training_s + case.scores_s
        error = 100 * (case.check_epoch_s / epoch - 1)
        times = [f"{epoch:.1f}", f"{case.check_epoch_s:.1f}", f"{error:+.0f}"]
        rows.append([case.network, str(case.images), *times, f"{case.memory_gb:.1f}", f"{case.check_gb:.1f}"])
    header = ["network", "images", "an epoch, s", "`check`, s", "error, %", "memory, GB", "`check`, GB"]
    return markdown(header, rows, numbers=True)


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="FILE.csv", help="rows of other networks in it stay")
    names = [network.name for network in NETWORKS]
    arguments.add_argument("--only", nargs="+", choices=names, default=names, metavar="NETWORK", help=", ".join(names))
    arguments.add_argument("--check", action="store_true", help="only the estimates of `check`: two steps of 16 images")
    args = arguments.parse_args(words)
    rows = []
    if args.out.is_file():
        earlier = pd.read_csv(args.out)
        rows = earlier[~earlier.network.isin(args.only)].to_dict("records")
    networks = [network for network in NETWORKS if network.name in args.only]
    for row in map(estimate, networks) if args.check else measured(networks):
        rows.append(row)
        print(row, flush=True)
        pd.DataFrame(rows).to_csv(args.out, index=False)


if __name__ == "__main__":
    run(main)
