"""A public network and images that it was not trained on, from loading to predictions: in %, before and after."""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.cifar10_c.corruptions import Bytes
from benchmarks.cifar10_c.networks import SHOWN, load
from benchmarks.tables import markdown
from tllib_ancon import adapt, predict
from tllib_ancon.data.images import decode


def as_jpeg(image: Bytes) -> Bytes:
    """Stored as JPEG of quality 10 and read again."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=10)
    return np.asarray(decode(file, "an image"))


def in_the_dark(image: Bytes) -> Bytes:
    """A quarter of the light, in whole numbers."""
    return image // 4


def as_thumbnail(image: Bytes) -> Bytes:
    """Half as wide and high, and enlarged again."""
    small = Image.fromarray(image).resize((16, 16), Image.Resampling.BILINEAR)
    return np.asarray(small.resize((32, 32), Image.Resampling.BILINEAR))


SHIFTS: dict[str, Callable[[Bytes], Bytes]] = {
    "stored as JPEG of quality 10": as_jpeg,
    "in a quarter of the light": in_the_dark,
    "a thumbnail, enlarged": as_thumbnail,
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cifar10_c.own_network", description=__doc__)
    parser.add_argument("folder", type=Path, help="with test.npz (x, y) and resnet20-*.th")
    parser.add_argument("--methods", nargs="+", default=["adabn", "ancon", "ancon-auto", "shot+ancon-auto"])
    parser.add_argument("--images", type=int, default=1000, metavar="N", help="the first of test.npz")
    parser.add_argument("--epochs", type=int, default=3, metavar="N")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], metavar="S")
    args = parser.parse_args(words)
    with np.load(args.folder / "test.npz") as data:
        images, labels = data["x"][: args.images], data["y"][: args.images]
    rows = []
    for name, shift in SHIFTS.items():
        with tempfile.TemporaryDirectory() as folder:
            for number, image in enumerate(images):
                Image.fromarray(shift(image)).save(f"{folder}/{number:05d}.png")
            found = {method: accuracies(args.folder, folder, labels, method, args) for method in args.methods}
        before, *_ = next(iter(found.values()))
        means = (np.mean(after) for _, *after in found.values())
        rows.append([name, f"{before:.1f}", *(f"{mean:.1f}" for mean in means)])
    print(markdown(["images", "the network as it is", *args.methods], rows, numbers=True))
    return 0


def accuracies(networks: Path, folder: str, labels: np.ndarray, method: str, args: argparse.Namespace) -> list[float]:
    """Of the network as it is, and of each seed after the adaptation."""
    prepared = {**SHOWN, "workers": 0, "quiet": True}
    model = load(next(networks.glob("resnet20-*.th")))
    models = [
        model,
        *(adapt(model, folder, method=method, epochs=args.epochs, seed=seed, **prepared).model for seed in args.seeds),
    ]
    return [100 * float((predict(each, folder, **prepared).labels == labels).mean()) for each in models]


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
