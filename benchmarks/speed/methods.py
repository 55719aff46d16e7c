"""Processor time of a whole run of each method, beside that of self-training."""

import time
from functools import partial

import numpy as np

from benchmarks.cifar10_c.corruptions import corrupted
from benchmarks.cifar10_c.networks import SHOWN, ResNet, load
from benchmarks.speed.timing import in_turn, ratio
from tllib_ancon import adapt

WAYS = {
    "ancon": ({"method": "ancon", "criterion": "last"}, None),
    "shot": ({"method": "shot", "criterion": "last"}, None),
    "ancon-auto, one view": ({"method": "ancon-auto", "views": 1}, 1.15),
    "ancon-auto, two views": ({"method": "ancon-auto"}, 1.5),
}
"""Settings, and the largest ratio that the project asks for."""


def measure(cifar10=None, rounds=4, count=2000, **_):
    """Three epochs of a ResNet-20 on arrays without labels, on one thread.

    Args:
        cifar10: with test.npz and the networks' .th files; the images get noise. Default: drawn images and weights
        count: number of images
    """
    if cifar10 is None:
        model, images = ResNet(3), np.random.default_rng(0).integers(256, size=(count, 32, 32, 3), dtype=np.uint8)
    else:
        model = load(next(cifar10.glob("resnet20-*.th")))
        with np.load(cifar10 / "test.npz") as data:
            images = corrupted(data["x"][:count], "gaussian_noise", 5)
    common = {"epochs": 3, "batch_size": 64, "threads": 1, "workers": 0, "quiet": True, **SHOWN}
    plain = partial(adapt, model, images, method="self-training", criterion="last", **common)
    runs = {name: partial(adapt, model, images, **settings, **common) for name, (settings, _) in WAYS.items()}
    seconds = in_turn({"plain": plain, **runs}, rounds, clock=time.process_time)
    for name, (_, at_most) in WAYS.items():
        yield ratio(f"processor time of {name} / of self-training", seconds[name], seconds["plain"], at_most)
