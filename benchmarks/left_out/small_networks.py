"""Small networks, most of them without batch-norm, on other digits or on corrupted pictures by default settings.

    python -m benchmarks.left_out.small_networks DATA [--pictures]

DATA holds digits (``mnist.npz``, ``usps.npz``, ``mnist_m_test.npz``) and cifar10 (``train_10000.npz``, ``test.npz``).
The networks are trained on 12,000 images of MNIST, or with ``--pictures`` on 10,000 of CIFAR-10. It prints the accuracy
of the source model, from as many views as the default predicts from, and after three epochs. Digits take five minutes
on one core, pictures half an hour.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from benchmarks import run
from benchmarks.cifar10_c.corruptions import corrupted
from benchmarks.cifar10_c.networks import MEAN, STD
from benchmarks.tables import markdown
from tllib_ancon import adapt
from tllib_ancon.models.batch_norm import has_statistics

SIDE = 28
BATCH = 64
EPOCHS = 3
SHIFT = 4
WAYS = {
    "default": {},
    "mirrored": {"no_hflip": False},
    "adabn": {"method": "adabn"},
    "self-training": {"method": "self-training"},
    "shot": {"method": "shot"},
}
OF_DIGITS = {"norm_mean": (0.0,), "norm_std": (1.0,)}
OF_PICTURES = {"norm_mean": MEAN, "norm_std": STD, "image_size": 32}
CORRUPTIONS = ("none-0", "gaussian_noise-2", "contrast-3", "motion_blur-3", "shot_noise-2", "snow-3")


def main(words=None):
    arguments = argparse.ArgumentParser(prog=__spec__.name, description=__doc__)
    arguments.add_argument("data", type=Path, metavar="DATA")
    arguments.add_argument("--pictures", action="store_true", help="CIFAR-10 in place of digits")
    args = arguments.parse_args(words)
    torch.set_num_threads(1)
    if args.pictures:
        ways, rows = ["default", "shot"], of_pictures(args.data / "cifar10")
    else:
        ways, rows = list(WAYS), of_digits(args.data / "digits")
    table = [[network, target, *accuracies(*task, ways)] for network, target, task in rows]
    print(markdown(["network", "target", "source model", *ways], table, numbers=True))


def of_digits(folder):
    """Names of a network and a target, and the network, images, labels and settings."""
    with np.load(folder / "mnist.npz") as arrays:
        images = torch.from_numpy(arrays["train_x"].reshape(-1, 1, SIDE, SIDE)) / 255
        labels = torch.from_numpy(arrays["train_y"].astype(np.int64))
    torch.manual_seed(0)
    chosen = torch.randperm(len(images))[:12_000]
    for name, make in NETWORKS_OF_DIGITS.items():
        network = trained(make, images[chosen], labels[chosen], epochs=2, augment=nn.Identity())
        for target in ("mnist", "usps", "mnist_m"):
            yield name, target, (network, *digits(folder, target), OF_DIGITS)


def of_pictures(folder):
    """The same of corruptions of CIFAR-10: all ten classes equally often, or four of them."""
    with np.load(folder / "train_10000.npz") as arrays:
        images = (torch.from_numpy(arrays["x"]) / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
        labels = torch.from_numpy(arrays["y"])
    with np.load(folder / "test.npz") as arrays:
        test_images, test_labels = arrays["x"], arrays["y"].astype(np.int64)
    four_classes = np.isin(test_labels, (2, 4, 6, 9))
    for name, make in NETWORKS_OF_PICTURES.items():
        network = trained(make, images.permute(0, 3, 1, 2), labels, epochs=10, augment=mirrored_and_shifted)
        for corruption in CORRUPTIONS:
            kind, _, severity = corruption.partition("-")
            for classes, occurring in (("ten", slice(None)), ("four", four_classes)):
                part, part_labels = test_images[occurring][:800], test_labels[occurring][:800]
                if kind != "none":
                    part = corrupted(part, kind, int(severity))
                yield name, f"{corruption}, {classes} classes", (network, part, part_labels, OF_PICTURES)


def two_convolutions(norm):
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5), norm(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5), norm(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )


def pooled():
    blocks = []
    for channels_in, channels in ((1, 32), (32, 64), (64, 128)):
        blocks += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Residual(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False), nn.GroupNorm(8, channels), nn.ReLU()),
            *(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.GroupNorm(8, channels)),
        )
        self.shortcut = nn.Identity()
        if channels_in != channels:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, images):
        return torch.relu(self.body(images) + self.shortcut(images))


def residual():
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.GroupNorm(8, 32), nn.ReLU()),
        *(Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    )


def six_convolutions():
    blocks = []
    for channels_in, channels in ((3, 32), (32, 64), (64, 128)):
        blocks += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU()]
        blocks += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(2048, 10))


NETWORKS_OF_DIGITS = {
    "two convolutions": partial(two_convolutions, nn.BatchNorm2d),
    "pooled": pooled,
    "no norm": partial(two_convolutions, nn.Identity),
    "group-norm": partial(two_convolutions, partial(nn.GroupNorm, 4)),
}
NETWORKS_OF_PICTURES = {"group-norm": residual, "no norm": six_convolutions}


def trained(make, images, labels, epochs, augment):
    torch.manual_seed(0)
    network = make()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(augment(images[batch])), labels[batch]).backward()
            optimizer.step()
    return network.eval()


def mirrored_and_shifted(images):
    mirrored = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)
    padded = nn.functional.pad(mirrored, (SHIFT,) * 4)
    left, top = torch.randint(2 * SHIFT + 1, (2,)).tolist()
    return padded[:, :, top : top + images.shape[2], left : left + images.shape[3]]


def digits(folder, name):
    """Grey images (N, 28, 28, 1) and labels of a test set."""
    file = folder / ("mnist_m_test.npz" if name == "mnist_m" else f"{name}.npz")
    with np.load(file) as arrays:
        pixels, labels = (arrays["x"], arrays["y"]) if name == "mnist_m" else (arrays["test_x"], arrays["test_y"])
    chosen = np.random.default_rng(0).permutation(len(labels))[:1000]
    pixels = pixels[chosen]
    if name == "mnist_m":
        pixels = pixels.mean(3)
    if name == "usps":
        pixels = 255 * pixels
    side = int(np.sqrt(pixels[0].size))
    grey = pixels.reshape(-1, side, side).astype(np.uint8)
    resized = np.stack([np.asarray(Image.fromarray(image).resize((SIDE, SIDE))) for image in grey])
    return resized[..., None], labels[chosen].astype(np.int64)


def accuracies(network, images, labels, settings, ways):
    """Of the source model, and after the last epoch each way; AdaBN needs batch-norm."""
    last = []
    for way in ways:
        if way == "adabn" and not has_statistics(network):
            last.append("–")
            continue
        epochs = 1 if way == "adabn" else EPOCHS
        metrics = adapt(
            network, images, labels=labels, epochs=epochs, workers=0, quiet=True, **WAYS[way], **settings
        ).metrics
        if way == "default":
            start = f"{metrics[0]['accuracy']:.1f}"
        last.append(f"{metrics[-1]['accuracy']:.1f}")
    return [start, *last]


if __name__ == "__main__":
    run(main)
