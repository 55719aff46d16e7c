"""Time and memory of an adaptation by network and number of images.

    python -m benchmarks.speed.cost FILE.csv [--only NETWORK ...]

Each case runs in a process of its own, on one thread: ``adapt`` with its defaults for one epoch and for two, and
``predict``. The weights and the images are random. Times are processor times, which other programs lengthen little.
"""

import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import timm
import torch

from benchmarks import parser, run
from benchmarks.cifar10_c.networks import SHOWN, ResNet
from benchmarks.speed.images import draw_images
from benchmarks.tables import by_columns
from tllib_ancon import adapt, predict

SETTINGS = {"batch_size": 64, "threads": 1, "workers": 0, "quiet": True}
"""The default batch, on one thread. Workers would load images in other processes, whose time does not count here."""
EPOCHS = 30
"""Default number of epochs."""


class Network(NamedTuple):
    """A network of the table, of timm but for the ResNet-20, and the numbers of images that are measured."""

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
    for network in NETWORKS:
        for count in network.images if network.name in args.only else ():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                rows.append(process.submit(measure, network, count).result())
            print(rows[-1], flush=True)
            pd.DataFrame(rows).round(2).to_csv(args.out, index=False)


def measure(network, count):
    """Seconds and gigabytes of one case; call it in a process of its own, whose peak memory is read."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        if network.timm:
            draw_images(Path(folder), count)
            model, images, settings = timm.create_model(network.timm), Path(folder), SETTINGS
        else:
            images = np.random.default_rng(0).integers(256, size=(count, 32, 32, 3), dtype=np.uint8)
            model, settings = ResNet(3), SETTINGS | SHOWN
        one_epoch = seconds_of(adapt, model, images, epochs=1, no_hflip=False, **settings)
        two_epochs = seconds_of(adapt, model, images, epochs=2, no_hflip=False, **settings)
        prediction = seconds_of(predict, model, images, **settings)
    return {
        "network": network.name,
        "pixels": network.pixels,
        "images": count,
        "start_s": 2 * one_epoch - two_epochs,
        "epoch_s": two_epochs - one_epoch,
        "predict_s": prediction,
        "memory_gb": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9,
    }


def seconds_of(function, *arguments, **settings):
    began = time.process_time()
    function(*arguments, **settings)
    return time.process_time() - began


def table(cases):
    """A row for each network and number of images."""
    columns = {
        "network": (cases.network + ", " + cases.pixels.astype(str) + " pixels", ""),
        "images": (cases.images, ",d"),
        "an epoch, s": (cases.epoch_s, ",.0f"),
        f"{EPOCHS} epochs, min": ((cases.start_s + EPOCHS * cases.epoch_s) / 60, ",.0f"),
        "`predict`, s": (cases.predict_s, ",.1f"),
        "memory, GB": (cases.memory_gb, ".1f"),
    }
    return by_columns(columns)


if __name__ == "__main__":
    run(main)
