"""The families of images, their source models, and cells: one target each, small on purpose."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps
from torch import nn

from benchmarks import networks
from benchmarks.cifar10_c.corruptions import corrupted
from benchmarks.cifar10_c.networks import MEAN, STD, load
from benchmarks.data import MAKERS
from tllib_ancon.laboratory.digits import handwritten_digits, rendered_digits

KINDS = ("equal", "long-tail", "few")
"""Of targets: the classes as they occur; frequencies that fall to a twentieth, in a random order; a third of the
classes (of seven 3, of ten 4, of 26 8, of 31 10)."""
TAIL = 20
FEW = {7: 3, 10: 4, 26: 8, 31: 10}
WEAK = ", weak"
"""After the name of a network: its source model is trained for a tenth of the steps."""
NO_SHIFT = "none"
"""Target of a cell without a shift: images of the source that trained no model."""
DOMAINS = {"A": "amazon", "D": "dslr", "W": "webcam"}
NO_PICTURES = ("Symbols", "Flags", "Component")
"""Groups of emoji that are left out. Seven classes remain."""
HALF = (0.5, 0.5, 0.5)


class Labelled(NamedTuple):
    """uint8 images (N, H, W[, 3]) and the class of each."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def part(self, positions):
        return Labelled(self.images[positions], self.labels[positions])


class Cell(NamedTuple):
    """One target: a pair of domains, how often each class occurs, and the network."""

    family: str
    source: str
    target: str
    kind: str
    network: str
    seed: int


class Task(NamedTuple):
    """What :func:`tllib_ancon.adapt` takes in a cell; ``views`` lists the numbers of views that predict."""

    model: nn.Module
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    settings: dict[str, Any]
    classes: int
    views: tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """Images of a family.

    Args:
        source: folder of the data, domain → images that train a source model
        target: folder of the data, source, target → images to adapt to
        mirror: whether a mirrored image keeps its class, so that training mirrors, and predictions have two views
        steps: of 64 images, of training a source model
    """

    classes: int
    side: int
    network: str
    source: Callable[[Path, str], Labelled]
    target: Callable[[Path, str, str], Labelled]
    mirror: bool = False
    steps: int = 400
    learning_rate: float = 5e-3


def split(images, is_target):
    """A fifth of a domain as target, the rest as source."""
    order = np.random.default_rng(0).permutation(len(images.labels))
    fifth = len(order) // 5
    return images.part(np.sort(order[:fifth] if is_target else order[fifth:]))


def digits_source(data, name):
    if name == "mnist_m":
        return split(_mnist_m(data), is_target=False)
    return _digits(data, name, "train").part(np.random.default_rng(0).permutation(7000))


def digits_target(data, source, target):
    name = source if target == NO_SHIFT else target
    if name == "mnist_m":
        return split(_mnist_m(data), is_target=True)
    return _digits(data, name, "test")


def _mnist_m(data):
    with np.load(data / "digits" / "mnist_m_test.npz") as file:
        return Labelled(_resized(file["x"], 28), file["y"].astype(np.int64))


def _digits(data, name, part):
    with np.load(data / "digits" / f"{name}.npz") as file:
        pixels = file[f"{part}_x"]
        labels = file[f"{part}_y"].astype(np.int64)
    if pixels.dtype != np.uint8:
        pixels = (pixels * 255).round().astype(np.uint8)
    side = round(np.prod(pixels.shape[1:]) ** 0.5)
    order = np.random.default_rng(0).permutation(len(labels))[:10_000]
    return Labelled(_resized(pixels.reshape(-1, side, side)[order], 28), labels[order])


def demo_source(data, name):
    return split(_demo("rendered"), is_target=False)


def demo_target(data, source, target):
    return split(_demo("rendered"), is_target=True) if target == NO_SHIFT else _demo(target)


def _demo(name):
    drawn = list(rendered_digits() if name == "rendered" else handwritten_digits())
    images = np.stack([np.asarray(image) for image, _ in drawn])
    return Labelled(images, np.array([label for _, label in drawn], np.int64))


def cifar10_target(data, source, target):
    with np.load(data / "cifar10" / "test.npz") as file:
        images, labels = file["x"], file["y"].astype(np.int64)
    if target == NO_SHIFT:
        return Labelled(images, labels)
    corruption, _, severity = target.partition("-")
    chosen = np.random.default_rng(0).permutation(len(labels))[:3000]
    frost = data / "cifar10" / "frost"
    return Labelled(corrupted(images[chosen], corruption, int(severity), seed=0, frost=frost), labels[chosen])


def cifar10_source(data, name):
    with np.load(data / "cifar10" / "train_10000.npz") as file:
        return Labelled(file["x"], file["y"].astype(np.int64))


def office31(data, domain, side):
    """All images of a domain."""
    images = []
    labels = []
    for line in (data / "office31" / "image_list" / f"{DOMAINS[domain]}.txt").read_text().splitlines():
        name, _, label = line.rpartition(" ")
        with Image.open(data / "office31" / name) as image:
            images.append(np.asarray(image.convert("RGB").resize((side, side))))
        labels.append(int(label))
    return Labelled(np.stack(images), np.array(labels, np.int64))


def office31_source(data, name, side):
    return split(office31(data, name, side), is_target=False)


def office31_target(data, source, target, side):
    return split(office31(data, source, side), is_target=True) if target == NO_SHIFT else office31(data, target, side)


def emoji(data, maker, is_target, side):
    """Pictures of the emoji that all makers have, on white: half of them train source models, half are targets. Of
    "MAKER edges" only the edges are drawn."""
    maker, _, edges = maker.partition(" ")
    folder = data / "emoji"
    names = json.loads((folder / MAKERS[0] / "emoji.json").read_text(encoding="utf-8"))
    entries = [
        entry
        for entry in sorted(names, key=lambda entry: entry["unified"])
        if entry["category"] not in NO_PICTURES and all(entry[f"has_img_{name}"] for name in MAKERS)
    ]
    categories = sorted({entry["category"] for entry in entries})
    in_source = np.random.default_rng(0).permutation(len(entries)) % 2
    images = []
    labels = []
    for entry, is_source in zip(entries, in_source, strict=True):
        if is_source != is_target:
            picture = Image.open(folder / maker / "img" / maker / "64" / entry["image"]).convert("RGBA")
            on_white = Image.new("RGBA", picture.size, "white")
            on_white.alpha_composite(picture)
            pixels = on_white.convert("RGB").resize((side, side))
            if edges:
                pixels = pixels.convert("L").filter(ImageFilter.FIND_EDGES)
                pixels = ImageOps.invert(ImageOps.autocontrast(pixels)).convert("RGB")
            images.append(np.asarray(pixels))
            labels.append(categories.index(entry["category"]))
    return Labelled(np.stack(images), np.array(labels, np.int64))


def emoji_target(data, source, target, side):
    return emoji(data, source if target == NO_SHIFT else target, is_target=True, side=side)


def fonts(data, domain, part, side):
    with np.load(data / f"fonts/{side}/{domain}-{part}.npz") as file:
        return Labelled(file["x"], file["y"].astype(np.int64))


def fonts_source(data, name, side):
    return fonts(data, name, "source", side)


def fonts_target(data, source, target, side):
    return fonts(data, source if target == NO_SHIFT else target, "target", side)


def _resized(images, side):
    if images.shape[1] == side:
        return images
    return np.stack([np.asarray(Image.fromarray(image).resize((side, side))) for image in images])


def _shares(kind, order):
    """The share of the images of each class that a target has; ``order`` is the rank of each class."""
    classes = len(order)
    if kind == "long-tail":
        return TAIL ** -(order / (classes - 1))
    if kind == "few":
        return (order < FEW[classes]).astype(float)
    return np.ones(classes)


def _pretrained(classes, side, source, target, steps=200, mirror=True):
    """A family of the MobileNetV2."""
    at_side = (partial(source, side=side), partial(target, side=side))
    return Family(classes, side, "mobilenetv2", *at_side, mirror, steps, 1e-3)


FAMILIES = {
    "digits": Family(10, 28, "pooled", digits_source, digits_target),
    "demo": Family(10, 32, "pooled", demo_source, demo_target),
    "cifar10-c": Family(10, 32, "resnet20", cifar10_source, cifar10_target, mirror=True, steps=1500),
    "office31": _pretrained(31, 96, office31_source, office31_target),
    "emoji": _pretrained(7, 96, partial(emoji, is_target=False), emoji_target, steps=150),
    "fonts": Family(26, 32, "pooled", partial(fonts_source, side=32), partial(fonts_target, side=32), steps=800),
    "fonts-96": _pretrained(26, 96, fonts_source, fonts_target, mirror=False),
}


@dataclass(frozen=True)
class Laboratory:
    """Where the data lie, where source models are stored, and the most images of a cell."""

    data: Path
    out: Path
    images: int = 800

    def task(self, cell):
        """The source model of a cell and the images to adapt it to."""
        family = FAMILIES[cell.family]
        domain = family.target(self.data, cell.source, cell.target)
        part = domain.part(self.positions(cell, domain.labels, family.classes))
        mean, std = self._normalisation(cell)
        settings = {
            "image_size": family.side,
            "norm_mean": mean,
            "norm_std": std,
            "batch_size": min(64, self.images // 4),
            "seed": cell.seed,
        }
        views = (1, 2) if family.mirror else (1,)
        return Task(self.source_model(cell), part.images, part.labels, settings, family.classes, views)

    def source_model(self, cell):
        """Train it, or load the one that was trained."""
        if cell.network.startswith("resnet"):
            return load(next((self.data / "cifar10").glob(f"{cell.network}-*.th")))
        family = FAMILIES[cell.family]
        network = self._network(cell, family)
        file = self.out / "sources" / f"{cell.family}-{cell.source}-{cell.network}-seed{cell.seed}.pt".replace(" ", "-")
        if file.exists():
            network.load_state_dict(torch.load(file, weights_only=True))
            return network.eval()
        domain = family.source(self.data, cell.source)
        images = networks.normalised(domain.images, *self._normalisation(cell))
        labels = torch.from_numpy(domain.labels)
        steps = family.steps // 10 if cell.network.endswith(WEAK) else family.steps
        networks.train(network, images, labels, steps, family.mirror, cell.seed, family.learning_rate)
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(network.state_dict(), file)
        return network

    def _network(self, cell, family):
        torch.manual_seed(cell.seed)
        if cell.network == "mobilenetv2":
            return networks.mobilenet(family.classes, self.data / "mobilenetv2_100_imagenet.safetensors")
        network = networks.SMALL[cell.network.removesuffix(WEAK)](family.classes)
        network(torch.zeros(2, 3, family.side, family.side))
        return network

    def _normalisation(self, cell):
        return (MEAN, STD) if cell.family == "cifar10-c" else (HALF, HALF)

    def positions(self, cell, labels, classes):
        """Of the images of this kind of target, at most as many as a cell has, in the order of the domain."""
        generator = np.random.default_rng(cell.seed)
        order = generator.permutation(classes)
        shares = _shares(cell.kind, order)
        candidates = np.flatnonzero(generator.random(len(labels)) < shares[labels])
        return np.sort(generator.permutation(candidates)[: self.images])
