"""The four families: Office-31, digits, the demo's digits and CIFAR-10-C, as cells that are small on purpose.

A cell is one target: a pair of domains (or a network and a corruption) and how often each class occurs in it.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from benchmarks.cifar10_c.corruptions import corrupted
from benchmarks.cifar10_c.networks import MEAN, STD, load
from benchmarks.tables.digits import lists, to_tllib
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.lists import read_image_list
from tllib_ancon.data.loading import hold_out
from tllib_ancon.data.open import open_domain
from tllib_ancon.laboratory.digits import CROP, SOURCE, TARGET, write_demo_domains
from tllib_ancon.training.pretrain import pretrain
from tllib_ancon.training.run import RunDirectory

KINDS = ("equal", "long-tail", "few")
"""Of targets: the domain's own shares, or equal ones where it has as many images as one likes; sizes of classes that
fall to a twentieth, in a random order; three of seven classes, four of ten, or ten of 31."""
TAIL, FEW = 20, {7: 3, 10: 4, 31: 10}
FAMILIES = ("office31", "digits", "demo", "cifar10-c")
SEVEN = "office31-seven"
"""Family of source models and targets of seven classes of Office-31, which the seed draws. See
``benchmarks/results/harm.md``."""
EMOJI = "emoji"
"""Family of the pictures of emoji by four makers. No rule of the package was chosen on it. See
``benchmarks/results/harm.md``."""
MAKERS = ("apple", "google", "twitter", "facebook")
NO_PICTURES = ("Symbols", "Flags", "Component")
"""Groups of emoji that are left out. Seven classes remain."""
DOMAINS = {"A": "amazon", "D": "dslr", "W": "webcam"}
NO_SHIFT = "none"
FULL_RATE = "full rate"


class Cell(NamedTuple):
    """One target."""

    family: str
    pair: str
    kind: str
    seed: int = 0


class Task(NamedTuple):
    """What :func:`tllib_ancon.adapt` takes in a cell."""

    model: nn.Module | str
    images: Any
    labels: NDArray[np.int64]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Cells:
    """The data, the source models, and how large a cell is."""

    data: Path  # office31, digits and cifar10 lie there
    out: Path  # of source models
    images: int = 800
    epochs: int = 3
    side: int = 96  # of Office-31's images, in pixels
    source_epochs: int = 15  # of 40 steps, of Office-31's source models

    def task(self, cell):
        """The source model of a cell and the images to adapt it to."""
        openers = {
            "office31": self._office31,
            SEVEN: self._seven,
            EMOJI: self._emoji,
            "digits": self._digits,
            "demo": self._demo,
        }
        opened: Task = openers.get(cell.family, self._cifar10_c)(cell)
        common = {"seed": cell.seed, "epochs": self.epochs, "threads": 1, "workers": 0, "quiet": True}
        return opened._replace(settings={**common, **opened.settings})

    def _office31(self, cell):
        code, _, target = cell.pair.partition("-")
        root = self.data / "office31"
        weights = str(self.data / "mobilenetv2_100_imagenet.safetensors")
        given = {"data": "Office31", "source": (code,), "pretrained_weights": weights}
        name, sizes = f"office31-{code}", {"image_size": self.side, "resize_size": round(self.side * 8 / 7)}
        options = {**given, **OFFICE31, **sizes, "epochs": self.source_epochs}
        source = self.trained(name, cell.seed, root, **options)
        domain = open_domain(str(root), "Office31", [code if target == NO_SHIFT else target])
        if target == NO_SHIFT:
            domain = domain.subset(hold_out(len(domain), 0.1, cell.seed)[1])
        batch = {"batch_size": 32, "cache": str(self.out / "cache")}
        return self._part(cell, source, domain, batch)

    def _seven(self, cell):
        code, _, target = cell.pair.partition("-")
        root = self.out / f"seven{cell.seed}"
        for domain_code in (code, target):
            _write_seven_classes(self.data / "office31", root, DOMAINS[domain_code], cell.seed)
        weights = str(self.data / "mobilenetv2_100_imagenet.safetensors")
        brief = {"epochs": 4, "iters_per_epoch": 20, "pretrained_weights": weights, "source": (DOMAINS[code],)}
        source = self.trained(f"seven-{code}", cell.seed, root, **{**OFFICE31, **brief})
        domain = open_domain(str(root), "ImageList", [DOMAINS[target]])
        chosen = np.sort(np.random.default_rng(cell.seed).permutation(len(domain))[: self.images])
        part = domain.subset(chosen)
        settings = {"batch_size": 32, "cache": str(self.out / "cache")}
        return Task(source, part, part.labels, settings)

    def _emoji(self, cell):
        maker, _, target = cell.pair.partition("-")
        root = self.out / EMOJI
        write_emoji(self.data / EMOJI, root)
        weights = str(self.data / "mobilenetv2_100_imagenet.safetensors")
        brief = {"data": "ImageFolder", "source": (f"{maker}-source",), "epochs": 4, "pretrained_weights": weights}
        source = self.trained(f"emoji-{maker}", cell.seed, root, **{**OFFICE31, **brief})
        domain = open_domain(str(root), "ImageFolder", [f"{target}-target"])
        return self._part(cell, source, domain, {"batch_size": 32, "cache": str(self.out / "cache")})

    def _digits(self, cell):
        name, _, target = cell.pair.partition("-")
        source = self.trained_on_digits(name, cell.seed)
        if target == "mnist_m":
            with np.load(self.data / "digits" / "mnist_m_test.npz") as file:
                images, labels = file["x"], file["y"].astype(np.int64)
            part = self.positions(cell, labels, 10)
            return Task(source, images[part], labels[part], {"batch_size": 64})
        domain = open_domain(str(self.digits_folder()), "ImageList", [f"{name if target == NO_SHIFT else target}_test"])
        return self._part(cell, source, domain, {"batch_size": 64})

    def _demo(self, cell):
        root = self.out / "demo"
        write_demo_domains(root)
        source = self.trained("demo", cell.seed, root=root, source=(SOURCE,), epochs=10, **DEMO)
        domain = open_domain(str(root), "ImageList", [SOURCE if cell.pair == NO_SHIFT else TARGET])
        if cell.pair == NO_SHIFT:
            domain = domain.subset(hold_out(len(domain), 0.1, cell.seed)[1])
        own = {"scratch": cell.pair == FULL_RATE, "epochs": 2 * self.epochs}
        return self._part(cell, source, domain, {**own, "scale": (0.5, 1.0), "no_hflip": True})

    def _cifar10_c(self, cell):
        name, corruption, severity = cell.pair.split("-")
        folder = self.data / "cifar10"
        with np.load(folder / "test.npz") as file:
            images, labels = file["x"], file["y"].astype(np.int64)
        part = self.positions(cell, labels, 10)
        images, labels = images[part], labels[part]
        if corruption != NO_SHIFT:
            images = corrupted(images, corruption, int(severity), seed=cell.seed, frost=folder / "frost")
        model = load(next(folder.glob(f"{name}-*.th")))
        own = {"batch_size": 64, "image_size": 32, "norm_mean": MEAN, "norm_std": STD}
        return Task(model, images, labels, own)

    def trained(self, name, seed, root, **settings):
        """The run directory of a source model, trained where it is not."""
        log = str(self.out / f"{name}-seed{seed}")
        common = {"root": str(root), "seed": seed, "log": log, "threads": 1, "workers": 0, "quiet": True}
        if not RunDirectory(log).finished:
            pretrain(PretrainConfig(**{"data": "ImageList", **common, **settings}))
        return log

    def trained_on_digits(self, name, seed):
        """The run directory of a source model of MNIST or MNIST-M."""
        root = self.digits_folder()
        if name == "mnist_m":
            _write_mnist_m(self.data / "digits" / "mnist_m_test.npz", root)
        return self.trained(name, seed, root=root, source=(f"{name}_source",), epochs=10, **DIGITS)

    def digits_folder(self):
        root, digits = self.out / "digits", self.data / "digits"
        if not (root / "image_list" / "classes.txt").is_file():
            to_tllib.main([str(root), "--mnist", str(digits / "mnist.npz"), "--usps", str(digits / "usps.npz")])
            lists.write(root, root)
        return root

    def _part(self, cell, source, domain, settings):
        part = domain.subset(self.positions(cell, domain.labels, domain.num_classes))
        return Task(source, part, part.labels, settings)

    def positions(self, cell, labels, num_classes):
        """Of the images of this kind, at most as many as a cell has, in the order of the domain."""
        generator = np.random.default_rng(cell.seed)
        order = generator.permutation(num_classes)
        shares = {
            "equal": np.ones(num_classes),
            "long-tail": TAIL ** -(order / (num_classes - 1)),
            "few": (order < FEW[num_classes]).astype(float),
        }[cell.kind]
        kept = np.flatnonzero(generator.random(len(labels)) < shares[labels])
        most = self.images // 2 if cell.family == "office31" else self.images
        return np.sort(generator.permutation(kept)[:most])


def _write_seven_classes(office31, root, domain, seed):
    """The images of seven of 31 classes, which the seed draws, and their list."""
    image_list = root / "image_list" / f"{domain}.txt"
    if image_list.exists():
        return
    classes = np.sort(np.random.default_rng(seed).permutation(31)[:7]).tolist()
    paths, labels = read_image_list(office31 / "image_list" / f"{domain}.txt", office31)
    lines = []
    for path, label in zip(paths, labels.tolist(), strict=True):
        if label in classes:
            name = Path(path).relative_to(office31)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, root / name)
            lines.append(f"{name} {classes.index(label)}\n")
    image_list.parent.mkdir(exist_ok=True)
    image_list.write_text("".join(lines), encoding="utf-8")
    names = "".join(f"{number}\n" for number in classes)
    (root / "image_list" / "classes.txt").write_text(names, encoding="utf-8")


def write_emoji(makers, root):
    """Class folders of the emoji that all makers have, on white: a random half as sources, the other as targets."""
    if root.exists():
        return
    emoji = json.loads((makers / MAKERS[0] / "emoji.json").read_text(encoding="utf-8"))
    of_all_makers = [
        entry
        for entry in sorted(emoji, key=lambda entry: entry["unified"])
        if entry["category"] not in NO_PICTURES and all(entry[f"has_img_{maker}"] for maker in MAKERS)
    ]
    is_source = np.random.default_rng(0).permutation(len(of_all_makers)) % 2
    for maker in MAKERS:
        for entry, part in zip(of_all_makers, is_source, strict=True):
            folder = root / f"{maker}-{('target', 'source')[part]}" / entry["category"]
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.open(makers / maker / "img" / maker / "64" / entry["image"]).convert("RGBA")
            on_white = Image.new("RGBA", picture.size, "white")
            on_white.alpha_composite(picture)
            on_white.convert("RGB").save(folder / entry["image"])


def _write_mnist_m(arrays, root):
    """The images of MNIST-M as files, and their list as a source."""
    image_list = root / "image_list" / "mnist_m_source.txt"
    if image_list.exists():
        return
    folder = root / "MNIST_M"
    folder.mkdir(exist_ok=True)
    lines = []
    with np.load(arrays) as file:
        for position, (pixels, label) in enumerate(zip(file["x"], file["y"].tolist(), strict=True)):
            path = folder / f"{position:05}.png"
            Image.fromarray(pixels).save(path)
            lines.append(f"{path.resolve()} {label}\n")
    image_list.write_text("".join(lines), encoding="utf-8")


OFFICE31 = {
    "arch": "mobilenetv2_100",
    "arch_option": ("pad_type=same",),
    "norm_mean": (0.5, 0.5, 0.5),
    "norm_std": (0.5, 0.5, 0.5),
    "resize_size": 110,
    "image_size": 96,
    "batch_size": 32,
    "iters_per_epoch": 40,
}
DIGITS = {
    "arch": "small_cnn",
    "scratch": True,
    "train_resizing": "res.",
    "val_resizing": "res.",
    "resize_size": 28,
    "no_hflip": True,
    "label_smoothing": 0.1,
    "allow_outside_root": True,
}
DEMO = {
    "arch": "small_cnn",
    "scratch": True,
    "image_size": CROP,
    "scale": (0.5, 1.0),
    "no_hflip": True,
}
