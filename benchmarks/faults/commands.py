"""Commands that are disturbed, on tiny pictures: each method, stage and launcher."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("red", "green", "blue")
DOMAINS = {"bright": 1.0, "dark": 0.6}
IMAGES, SIDE = 48, 16
SCRIPT = """
import argparse, pathlib, shutil, time
parser = argparse.ArgumentParser()
parser.add_argument("root")
for flags in ("-d --data", "-s --source", "-t --target", "-a --arch", "--train-resizing", "--val-resizing", "--log"):
    parser.add_argument(*flags.split())
parser.add_argument("--resize-size", type=int)
args = parser.parse_args()
folder = pathlib.Path(args.log) / "checkpoints"
folder.mkdir(parents=True, exist_ok=True)
time.sleep(0.3)
shutil.copy(pathlib.Path(__file__).with_name("start.pth"), folder / "latest.pth")
"""
PLAN = """
title = "A plan of tiny runs"
dataset = "ImageList"
pairs = ["bright-dark"]
methods = ["self-training", "ancon"]
seeds = [0]

[source.erm]
method = "erm"
"""


@dataclass(frozen=True)
class Place:
    """Where a campaign keeps its pictures, and what each command writes to: the same folder each time."""

    folder: Path

    @property
    def pictures(self) -> Path:
        return self.folder / "pictures"

    @property
    def start(self) -> Path:
        return self.folder / "start.pth"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def emptied(self) -> Path:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        return self.work


def write_pictures(root: Path) -> None:
    """Noisy pictures whose strongest colour is their class, in lists as TLLib has them."""
    generator = np.random.default_rng(0)
    (root / "image_list").mkdir(parents=True)
    for domain, brightness in DOMAINS.items():
        lines = []
        for number in range(IMAGES):
            label = number % len(CLASSES)
            pixels = generator.integers(0, 140, (SIDE, SIDE, 3))
            pixels[..., label] += 60
            path = f"{domain}/{CLASSES[label]}/{number:03d}.png"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * brightness).astype(np.uint8)).save(root / path)
            lines.append(f"{path} {label}\n")
        (root / "image_list" / f"{domain}.txt").write_text("".join(lines))
    (root / "image_list" / "classes.txt").write_text("\n".join(CLASSES) + "\n")


PICTURES = ("--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", str(SIDE))
NETWORK = ("-a", "small_cnn", "--bottleneck-dim", "8")
TRAINING = (*NETWORK, "--scratch", *PICTURES, "--no-hflip", "-b", "8", "--quiet")


def pretrain(*more: str) -> Callable[[Place], list[str]]:
    def words(place: Place) -> list[str]:
        own = ("-d", "ImageList", "-s", "bright", *TRAINING, "--epochs", "3", "-j", "0", "--log", f"{place.work}/run")
        return ["pretrain", str(place.pictures), *own, *more]

    return words


def adapt(*more: str) -> Callable[[Place], list[str]]:
    def words(place: Place) -> list[str]:
        start = ("-d", "ImageList", "-s", "bright", "-t", "dark", "--checkpoint", str(place.start), *TRAINING)
        log = ("--epochs", "3", "-j", "0", "--save-predictions", "--log", f"{place.work}/run")
        return ["adapt", str(place.pictures), *start, *log, *more]

    return words


def two_stages(place: Place) -> list[str]:
    own = ("-d", "ImageList", "-s", "bright", "-t", "dark", "--pretrain", "erm", *TRAINING, "-j", "0")
    epochs = ("--epochs", "2", "--adapt-epochs", "2", "--adapt-batch-size", "8")
    return ["run", str(place.pictures), *own, *epochs, "--log", f"{place.work}/run"]


def with_cache(place: Place) -> list[str]:
    return [*adapt("--method", "ancon", "--cache", f"{place.work}/cache")(place)]


def script(place: Place) -> list[str]:
    path = place.folder / "cdan.py"
    path.write_text(SCRIPT)
    own = ("-d", "ImageList", "-s", "bright", "-t", "dark", "-a", "small_cnn", *PICTURES, "--log", f"{place.work}/run")
    ours = ("--method", "ancon", "--adapt-epochs", "3", "--adapt-batch-size", "8", "--quiet")
    return ["script", str(path), str(place.pictures), *own, *ours]


def predict(place: Place) -> list[str]:
    own = ("-d", "ImageList", "-t", "dark", "--checkpoint", str(place.start), *NETWORK, *PICTURES)
    return ["predict", str(place.pictures), *own, "-b", "4", "-j", "0", "--out", f"{place.work}/out.csv"]


def benchmark(place: Place) -> list[str]:
    plan = place.folder / "plan.toml"
    plan.write_text(PLAN)
    network = (*NETWORK, "--scratch", "--both-train-resizing", "res.", *PICTURES[2:], "-j", "0")
    short = ("--both-epochs", "2", "--both-batch-size", "8")
    return ["benchmark", str(plan), str(place.pictures), "--out", f"{place.work}/runs", *network, *short]


def by_torchrun(place: Place) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ("--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(port))
    words = adapt("--method", "ancon")(place)
    return ["-m", "torch.distributed.run", *launcher, "-m", "--", "tllib_ancon", *words]


COMMANDS: dict[str, Callable[[Place], list[str]]] = {
    "pretrain, ERM": pretrain(),
    "pretrain, CDAN": pretrain("-t", "dark", "--method", "cdan", "-i", "4"),
    "pretrain, MDD": pretrain("-t", "dark", "--method", "mdd", "-i", "4"),
    "adapt, self-training": adapt("--method", "self-training"),
    "adapt, AnCon": adapt("--method", "ancon"),
    "adapt, AnCon, sparse votes": adapt("--method", "ancon", "--storage", "sparse"),
    "adapt, AnCon, 2 workers": adapt("--method", "ancon", "-j", "2"),
    "adapt, ELR": adapt("--method", "elr"),
    "adapt, GCE": adapt("--method", "gce"),
    "adapt, NRC+AnCon": adapt("--method", "nrc+ancon"),
    "adapt, SHOT+AnCon": adapt("--method", "shot+ancon"),
    "adapt, AaD": adapt("--method", "aad"),
    "run, two stages": two_stages,
    "script, two stages": script,
    "adapt, while a cache is built": with_cache,
    "predict": predict,
    "benchmark": benchmark,
    "adapt, AnCon, torchrun": by_torchrun,
}
SLOW = {"benchmark", "adapt, AnCon, torchrun"}
"""They start Python processes of their own and are disturbed a fourth as often."""
