"""The works of the race: who takes part, on which network and images, with which settings. They were fixed before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.cifar10_c.__main__ import batches
from benchmarks.cifar10_c.corruptions import corrupted
from benchmarks.cifar10_c.networks import load
from tllib_ancon import PretrainConfig, predict, pretrain
from tllib_ancon.data.open import open_domain

PACKAGES = {
    "torch-ttt": ("torch-ttt==0.0.2", "einops"),  # which it imports and does not ask for
    "pytorch-adapt": ("pytorch-adapt==0.0.83", "setuptools<81"),  # so does this one, pkg_resources
    "skada": ("skada[deep]==0.6.0",),
    "ttadapters": ("ttadapters==1.0.0",),
}
"""What pip installs into an environment of its own, which sees torch and the rest of this one."""
WEIGHT = "head.parametrizations.weight.original"
NAMES = {"bottleneck.0.": "head_fc.", "bottleneck.1.": "head_bn.", "head.bias": "fc_final.bias"}
NAMES |= {f"{WEIGHT}0": "fc_final.weight_g", f"{WEIGHT}1": "fc_final.weight_v"}
"""Of parameters: ours, and those of AnCon's official code."""
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "jpeg_compression")


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
    Entry("skada DeepCoral", "skada", "", "skada"),
    Entry("ttadapters NORM", "ttadapters", "", "ttadapters"),
]
OFFICE31 = [Entry("ancon", "ours_office31", "ancon"), Entry("AnCon, official", "ancon_official", place="ancon")]


def cifar10_c(data: Path, work: Path, images: int) -> Iterator[Case]:
    """ResNet-20 on four corruptions of severity 5."""
    weights = next((data / "cifar10").glob("resnet20-*.th"))
    with np.load(data / "cifar10" / "test.npz") as file:
        clean, labels = file["x"][:images], file["y"][:images]
    for name in CORRUPTIONS:
        path, shifted = work / f"{name}-{images}.npy", corrupted(clean, name, 5)
        np.save(path, shifted)
        with torch.no_grad():
            before = torch.cat([load(weights)(batch).softmax(1) for batch in batches(shifted)])
        yield Case(
            name,
            {"weights": str(weights), "images": str(path), "num_images": len(clean)},
            torch.from_numpy(labels),
            before,
        )


def office31(data: Path, work: Path, images: int) -> Iterator[Case]:
    """MobileNetV2 at 128² from Amazon to Webcam; the source model is ours, in the layout of AnCon's official code."""
    root, source = str(data / "office31"), work / "office31-source"
    network = {"arch": "mobilenetv2_100", "pretrained_weights": str(data / "mobilenetv2_100_imagenet.safetensors")}
    resizing = {"train_resizing": "res.", "val_resizing": "res.", "resize_size": 128}
    given = {"root": root, "data": "Office31", "source": ("A",), "epochs": 6, "log": str(source), **network, **resizing}
    pretrain(PretrainConfig(**given, threads=1, workers=0, quiet=True))
    state = torch.load(source / "checkpoints" / "best.pth", weights_only=True)
    for ours, theirs in NAMES.items():
        state = {name.replace(ours, theirs): state[name] for name in state}
    checkpoint = work / "logs/benchmark_erm/OfficeHome_A-mobilenetv2_100/checkpoints/best.pth"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, checkpoint)
    target = open_domain(root, "Office31", ["W"])
    before = torch.as_tensor(predict(source, target, workers=0).probabilities)
    task = {"weights": str(checkpoint), "images": root, "num_images": len(target)}
    yield Case("A to W", task, torch.tensor(target.labels), before)


WORKS: dict[str, tuple[list[Entry], Callable[[Path, Path, int], Iterator[Case]]]]
WORKS = {"cifar10-c": (CIFAR10_C, cifar10_c), "office31": (OFFICE31, office31)}
