"""Small networks of MNIST, whose training saw no mirrors, on other digits by default settings.

    python -m benchmarks.left_out.digits DATA

DATA holds digits (``mnist.npz``, ``usps.npz``, ``mnist_m_test.npz``). Four minutes on one core. It prints the accuracy
of the source model and after three epochs.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from benchmarks import run
from benchmarks.tables import markdown
from tllib_ancon import adapt
from tllib_ancon.models.batch_norm import has_statistics

SIDE = 28
IMAGES = 1000
TRAINED_ON = 12_000
WAYS = {
    "default": {},
    "mirrored": {"no_hflip": False},
    "not mirrored": {"no_hflip": True},
    "adabn": {"method": "adabn"},
    "self-training": {"method": "self-training"},
    "shot": {"method": "shot"},
}
BYTES_TO_UNITS = {"norm_mean": (0.0,), "norm_std": (1.0,), "threads": 1, "workers": 0}


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(prog=__spec__.name, description=__doc__)
    arguments.add_argument("data", type=Path, metavar="DATA")
    folder = arguments.parse_args(words).data / "digits"
    rows = []
    for kind in NETWORKS:
        network = trained_network(kind, folder / "mnist.npz")
        for name in ("mnist", "usps", "mnist_m"):
            images, labels = target(folder, name)
            accuracies = [adapted(network, images, labels, way) for way in WAYS]
            rows.append([kind, name, accuracies[0][0], *(last for _, last in accuracies)])
    print(markdown(["network", "target", "source model", *WAYS], rows, numbers=True))


def two_convolutions(norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5), norm(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5), norm(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )


def without_norm() -> nn.Module:
    return two_convolutions(nn.Identity)


def pooled() -> nn.Module:
    blocks = []
    for channels_in, channels in ((1, 32), (32, 64), (64, 128)):
        blocks += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


NETWORKS = {"two convolutions": two_convolutions, "without batch-norm": without_norm, "pooled": pooled}


def trained_network(kind: str, file: Path) -> nn.Module:
    with np.load(file) as arrays:
        images = torch.from_numpy(arrays["train_x"].reshape(-1, 1, SIDE, SIDE)) / 255
        labels = torch.from_numpy(arrays["train_y"].astype(np.int64))
    torch.manual_seed(0)
    chosen = torch.randperm(len(images))[:TRAINED_ON]
    network = NETWORKS[kind]()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(2):
        for batch in chosen.split(64):
            optimizer.zero_grad()
            loss: Tensor = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    return network.eval()


def target(folder: Path, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Grey images (N, 28, 28, 1) and labels of a test set."""
    file = folder / ("mnist_m_test.npz" if name == "mnist_m" else f"{name}.npz")
    with np.load(file) as arrays:
        pixels, labels = (arrays["x"], arrays["y"]) if name == "mnist_m" else (arrays["test_x"], arrays["test_y"])
    chosen = np.random.default_rng(0).permutation(len(labels))[:IMAGES]
    pixels = pixels[chosen]
    if name == "mnist_m":
        pixels = pixels.mean(3)
    if name == "usps":
        pixels = 255 * pixels
    side = int(np.sqrt(pixels[0].size))
    grey = pixels.reshape(-1, side, side).astype(np.uint8)
    resized = np.stack([np.asarray(Image.fromarray(image).resize((SIDE, SIDE))) for image in grey])
    return resized[..., None], labels[chosen].astype(np.int64)


def adapted(network: nn.Module, images: NDArray[np.uint8], labels: NDArray[np.int64], way: str) -> tuple[str, str]:
    """Accuracy of the source model from one view, and after the last epoch; AdaBN needs batch-norm."""
    if way == "adabn" and not has_statistics(network):
        return "", "–"
    settings = {"epochs": 1 if way == "adabn" else 3, **WAYS[way], **BYTES_TO_UNITS}
    metrics = adapt(network, images, labels=labels, quiet=True, **settings).metrics
    start = metrics[0].get("accuracy_one_view", metrics[0]["accuracy"])
    return f"{start:.1f}", f"{metrics[-1]['accuracy']:.1f}"


if __name__ == "__main__":
    run(main)
