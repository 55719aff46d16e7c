"""Small labelled domains written to disk in TLLib's ImageList layout, for tests."""

from pathlib import Path

import numpy as np
from PIL import Image

from tllib_ancon.config.pretrain import PretrainConfig

CLASSES = ("red", "green", "blue")
SIDE = 16
"""Pixels of an image."""


def write_domain(root, name, images, seed, brightness=1.0, side=SIDE):
    """Noisy pictures whose strongest colour is their class; a domain differs from another by its brightness."""
    generator = np.random.default_rng(seed)
    lines = []
    for number in range(images):
        label = number % len(CLASSES)
        pixels = generator.integers(0, 140, (side, side, 3))
        pixels[..., label] += 60
        path = Path(name) / CLASSES[label] / f"{number:03d}.png"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * brightness).clip(0, 255).astype(np.uint8)).save(root / path)
        lines.append(f"{path.as_posix()} {label}\n")
    lists = root / "image_list"
    lists.mkdir(exist_ok=True)
    (lists / f"{name}.txt").write_text("".join(lines))
    (lists / "classes.txt").write_text("\n".join(CLASSES) + "\n")


def write_domains(root):
    """``bright`` (source) and ``dark`` (target)."""
    write_domain(root, "bright", 60, seed=0)
    write_domain(root, "dark", 48, seed=1, brightness=0.6)
    return root


def small_arguments(root):
    """Arguments that every command on these domains shares."""
    return [
        *(str(root), "-d", "ImageList", "-s", "bright", "-a", "small_cnn", "--scratch", "--bottleneck-dim", "8"),
        *("--train-resizing=res.", "--val-resizing", "res.", "--resize-size", str(SIDE), "--no-hflip"),
        *("-b", "16", "-j", "0", "--quiet"),
    ]


def training(root, log, **settings):
    """The settings of a small source model's training, in Python."""
    network = {"arch": "small_cnn", "scratch": True, "image_size": SIDE, "batch_size": 12, "workers": 0, "epochs": 1}
    domains = {"root": root, "data": "ImageList", "source": ["bright"], "target": ["dark"]}
    return PretrainConfig(**{**network, **domains, **settings, "log": log})


def adapt_arguments(root, checkpoint, log, *more):
    """An adaptation of two epochs."""
    start = ["-t", "dark", "--checkpoint", str(checkpoint), "--epochs", "2", "--log", str(log)]
    return ["adapt", *small_arguments(root), *start, *more]


KEPT = ("--epochs", "3", "--method", "ancon", "--weighting", "0", "-b", "43", "--lr", "3")
"""Every adapted image votes in each epoch; the rate is too large, so that the first epoch is the best."""
