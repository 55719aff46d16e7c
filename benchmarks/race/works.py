"""The works of the race: who takes part, on which network and images, with which settings. They were fixed before."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.cifar10_c.corruptions import corrupted
from benchmarks.cifar10_c.networks import batches, load
from tllib_ancon import PretrainConfig, predict, pretrain
from tllib_ancon.data.open import open_domain

CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "jpeg_compression")
WEIGHT = "head.parametrizations.weight.original"
NAMES = {
    "bottleneck.0.": "head_fc.",
    "bottleneck.1.": "head_bn.",
    "head.bias": "fc_final.bias",
    f"{WEIGHT}0": "fc_final.weight_g",
    f"{WEIGHT}1": "fc_final.weight_v",
}
"""Of parameters: ours, and those of AnCon's official code."""


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Args:
        script: file in ``scripts``
        method: of this package
        beside: our row that does the same arithmetic, with which its speed is compared
        settings: that are not the work's
    """

    title: str
    script: str
    method: str = ""
    beside: str = "ancon"
    settings: dict[str, Any] = field(default_factory=dict)


class Case(NamedTuple):
    """A target, what a script is told of it, its labels, and the source model's probabilities."""

    name: str
    task: dict[str, Any]
    labels: Tensor
    before: Tensor


TENT, IM, ADABN = "tent, tensors", "shot-im, tensors", "adabn, tensors"
CIFAR10_C = [
    *(Entry(method, "ours", method) for method in ("ancon", "ancon-auto", "tent", "shot")),
    *(Entry(title, "ours_tensors", title.split(",")[0], beside=title) for title in (TENT, IM, ADABN)),
    Entry("Tent, its settings", "tent", "", TENT, {"epochs": 1, "batch_size": 200}),
    Entry("Tent", "tent", beside=TENT),
    Entry("pytorch-adapt AdaBN", "pytorch_adapt_adabn", beside=ADABN),
    Entry("pytorch-adapt IM", "pytorch_adapt_im", beside=IM),
]
OFFICE31 = [Entry("ancon", "ours_office31", "ancon"), Entry("AnCon, official", "ancon_official")]


def cifar10_c(data, work, images):
    """ResNet-20 on corruptions of severity 5."""
    weights = next((data / "cifar10").glob("resnet20-*.th"))
    with np.load(data / "cifar10" / "test.npz") as file:
        clean, labels = file["x"][:images], file["y"][:images]
    for name in CORRUPTIONS:
        path = work / f"{name}-{images}.npy"
        shifted = corrupted(clean, name, 5, frost=data / "cifar10" / "frost")
        np.save(path, shifted)
        with torch.no_grad():
            before = torch.cat([load(weights)(batch).softmax(1) for batch in batches(shifted)])
        task = {"weights": str(weights), "images": str(path), "num_images": len(clean)}
        yield Case(name, task, torch.from_numpy(labels), before)


def office31(data, work, images):
    """Amazon to Webcam, MobileNetV2 at 128²; the source model is ours, in the layout of AnCon's official code."""
    root = str(data / "office31")
    log = work / "office31-source-A"
    config = PretrainConfig(
        arch="mobilenetv2_100",
        pretrained_weights=str(data / "mobilenetv2_100_imagenet.safetensors"),
        root=root,
        data="Office31",
        source=("A",),
        image_size=128,
        train_resizing="res.",
        val_resizing="res.",
        epochs=6,
        log=str(log),
        threads=1,
        workers=0,
        quiet=True,
    )
    pretrain(config)
    state = torch.load(log / "checkpoints" / "best.pth", weights_only=True)
    checkpoint = work / "logs/benchmark_erm/OfficeHome_A-mobilenetv2_100/checkpoints/best.pth"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.save(renamed(state), checkpoint)
    domain = open_domain(root, "Office31", ["W"])
    before = torch.as_tensor(predict(log, domain, workers=0).probabilities)
    task = {"weights": str(checkpoint), "images": root, "num_images": len(domain), "source": "A", "target": "W"}
    yield Case("A to W", task, torch.tensor(domain.labels), before)


def renamed(state):
    """The same weights under the names of AnCon's official code."""
    for ours, official in NAMES.items():
        state = {name.replace(ours, official): value for name, value in state.items()}
    return state


WORKS = {"cifar10-c": (CIFAR10_C, cifar10_c), "office31": (OFFICE31, office31)}
