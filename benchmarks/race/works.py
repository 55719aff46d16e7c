"""The works of the race: who takes part, on which network and images, with which settings. They were fixed before."""

import gzip
import pickle
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.cifar10_c.corruptions import CORRUPTIONS, corrupted
from benchmarks.cifar10_c.networks import batches, load
from benchmarks.tables.digits.to_tllib import main as to_tllib
from tllib_ancon import PretrainConfig, predict, pretrain
from tllib_ancon.data.open import open_domain

PACKAGES = {
    "torch-ttt": ("torch-ttt==0.0.2", "einops"),  # which it imports and does not ask for
    "pytorch-adapt": ("pytorch-adapt==0.0.83", "setuptools<81"),  # so does this one, pkg_resources
}
"""What pip installs into an environment of its own, which sees torch and the rest of this one."""
WEIGHT = "head.parametrizations.weight.original"
NAMES = {"bottleneck.0.": "head_fc.", "bottleneck.1.": "head_bn.", "head.bias": "fc_final.bias"}
NAMES |= {f"{WEIGHT}0": "fc_final.weight_g", f"{WEIGHT}1": "fc_final.weight_v"}
"""Of parameters: ours, and those of AnCon's official code."""
FOUR = ("gaussian_noise", "defocus_blur", "fog", "jpeg_compression")


@dataclass(frozen=True)
class Entry:
    """A row of the table: a file in ``scripts``, the package's method, and where it comes from: one of the packages, or
    a repository below ``--code``, or here. Its speed is compared with that of our row ``beside``, which does the same
    arithmetic. ``asks`` tells that the script has to ask the network for the predictions. ``own`` are settings that are
    not the work's."""

    title: str
    script: str
    method: str = ""
    place: str = ""
    beside: str = "ancon"
    asks: bool = False
    own: dict[str, Any] = field(default_factory=dict)


class Case(NamedTuple):
    """A target, what a script is told of it, its labels, and the source model's probabilities."""

    name: str
    task: dict[str, Any]
    labels: Tensor
    before: Tensor


TENT, IM, ADABN = "tent, tensors", "shot-im, tensors", "adabn, tensors"
PASS = {"epochs": 1, "batch_size": 200}  # Tent's own settings on CIFAR-10-C: the images go by once
TTT = {"options": {"lr": 1e-3, "num_steps": 3}} | PASS  # three steps on a copy: torch-ttt's own
IN_PLACE = {"options": {"lr": 1e-3, "num_steps": 1, "copy_model": False}}
CIFAR10_C = [
    *(Entry(method, "ours", method) for method in ("ancon", "ancon-auto", "tent", "shot")),
    *(Entry(title, "ours_tensors", title.split(",")[0], beside=title) for title in (TENT, IM, ADABN)),
    Entry("Tent, its settings", "tent", "", "tent", TENT, own=PASS),
    Entry("Tent", "tent", "", "tent", TENT),
    Entry("torch-ttt Tent, its settings", "torch_ttt", "tent", "torch-ttt", TENT, own=TTT),
    Entry("torch-ttt Tent", "torch_ttt", "tent", "torch-ttt", TENT, own=IN_PLACE),
    Entry("torch-ttt EATA, its settings", "torch_ttt", "eata", "torch-ttt", TENT, own=TTT),
    Entry("pytorch-adapt AdaBN", "pytorch_adapt_adabn", "", "pytorch-adapt", ADABN, asks=True),
    Entry("pytorch-adapt IM", "pytorch_adapt_im", "", "pytorch-adapt", IM, asks=True),
]
DIGITS = [
    Entry("shot", "ours_digits", beside="shot"),
    Entry("SHOT, official", "shot_official", place="shot", beside="shot", asks=True),
]
SHOT_NAMES = {"backbone.layers.": "conv_params.", "bottleneck.0.": "bottleneck.", "bottleneck.1.": "bn."}
SHOT_NAMES |= {f"{WEIGHT}0": "fc.weight_g", f"{WEIGHT}1": "fc.weight_v", "head.bias": "fc.bias"}
SHOT_FILES = {"F": ("conv_params.",), "B": ("bottleneck.", "bn."), "C": ("fc.",)}
"""Of parameters: ours, and SHOT's; and which of SHOT's names lie in each of its files."""
RESIZING = {"train_resizing": "res.", "val_resizing": "res."}
OFFICE31 = [Entry("ancon", "ours_office31", "ancon"), Entry("AnCon, official", "ancon_official", place="ancon")]


def cifar10_c(names, data, work, images):
    """ResNet-20 on corruptions of severity 5."""
    weights = next((data / "cifar10").glob("resnet20-*.th"))
    with np.load(data / "cifar10" / "test.npz") as file:
        clean, labels = file["x"][:images], file["y"][:images]
    for name in names:
        path = work / f"{name}-{images}.npy"
        shifted = corrupted(clean, name, 5, frost=data / "cifar10" / "frost")
        np.save(path, shifted)
        with torch.no_grad():
            before = torch.cat([load(weights)(batch).softmax(1) for batch in batches(shifted)])
        task = {"weights": str(weights), "images": str(path), "num_images": len(clean)}
        yield Case(name, task, torch.from_numpy(labels), before)


def office31(source, target, epochs, data, work, images):
    """MobileNetV2 at 128²; the source model is ours, in the layout of AnCon's official code."""
    root = str(data / "office31")
    log = work / f"office31-source-{source}"
    network = {"arch": "mobilenetv2_100", "pretrained_weights": str(data / "mobilenetv2_100_imagenet.safetensors")}
    images_of = {"root": root, "data": "Office31", "source": (source,), "resize_size": 128}
    state = torch.load(trained(log, **network, **images_of, epochs=epochs), weights_only=True)
    checkpoint = work / f"logs/benchmark_erm/OfficeHome_{source}-mobilenetv2_100/checkpoints/best.pth"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.save(renamed(state, NAMES), checkpoint)
    domain = open_domain(root, "Office31", [target])
    before = torch.as_tensor(predict(log, domain, workers=0).probabilities)
    task = {"weights": str(checkpoint), "images": root, "num_images": len(domain), "source": source, "target": target}
    yield Case(f"{source} to {target}", task, torch.tensor(domain.labels), before)


def digits(data, work, images):
    """SHOT's LeNet from MNIST to USPS; the source model is ours, of two epochs."""
    home = work / "digits"
    arrays = data / "digits"
    files = ["--mnist", str(arrays / "mnist.npz"), "--usps", str(arrays / "usps.npz")]
    to_tllib([str(home), *files, "--resplit-usps", "1860", "--usps-side", "28"])
    network = {"arch": "shot_lenet", "scratch": True, "bottleneck_dim": 256, "bottleneck_dropout": 0.5}
    images_of = {"root": str(home / "MNIST"), "data": "ImageList", "source": ("mnist_train",)}
    training = {"epochs": 2, "lr": 0.01, "label_smoothing": 0.1, "resize_size": 28, "no_hflip": True}
    weights = trained(home / "log", **network, **images_of, **training)
    usps = [open_domain(str(home / "USPS"), "ImageList", [f"usps_{split}"]) for split in ("train", "test")]
    train, test = (np.stack([each.images.image(row).convert("L") for row in range(len(each))]) for each in usps)
    np.savez(home / "usps.npz", train=train, test=test)
    labels = [np.array(domain.labels) for domain in usps]
    with np.load(arrays / "mnist.npz") as mnist:
        as_shot_reads(home, weights, mnist, list(zip((train, test), labels, strict=True)))
    before = torch.as_tensor(predict(home / "log", test, workers=0).probabilities)
    task = {"weights": str(weights), "images": str(home / "usps.npz"), "num_images": len(train)}
    yield Case("MNIST to USPS", task, torch.from_numpy(labels[1]), before)


def as_shot_reads(home, weights, mnist, usps):
    """Write images and source model as SHOT's script reads them."""
    pickled = home / "data" / "usps" / "usps_28x28.pkl"
    processed = home / "data" / "mnist" / "processed"
    for folder in (pickled.parent, processed, home / "source"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, split in (("training", "train"), ("test", "test")):
        torch.save(tuple(torch.from_numpy(mnist[f"{split}_{part}"]) for part in "xy"), processed / f"{name}.pt")
    with gzip.open(pickled, "wb", 1) as file:  # the script takes 255 times a value, and of that the integer
        pickle.dump([((pixels + 0.5) / 255, labels) for pixels, labels in usps], file)
    state = renamed(torch.load(weights, weights_only=True), SHOT_NAMES)
    for part, beginnings in SHOT_FILES.items():
        of_part = {name: value for name, value in state.items() if name.startswith(beginnings)}
        torch.save(of_part, home / "source" / f"source_{part}.pt")


def trained(log, **settings):
    """The weights of a source model of ours."""
    pretrain(PretrainConfig(**settings, **RESIZING, log=str(log), threads=1, workers=0, quiet=True))
    return log / "checkpoints" / "best.pth"


def renamed(state, names):
    """The same weights; each name has the words on the right for those on the left."""
    for ours, theirs in names.items():
        state = {name.replace(ours, theirs): value for name, value in state.items()}
    return state


WORKS = {
    "cifar10-c": (CIFAR10_C, partial(cifar10_c, FOUR)),
    "cifar10-c-fifteen": (CIFAR10_C, partial(cifar10_c, CORRUPTIONS)),
    "office31": (OFFICE31, partial(office31, "A", "W", 6)),
    "office31-d-a": (OFFICE31, partial(office31, "D", "A", 15)),
    "digits": (DIGITS, digits),
}
