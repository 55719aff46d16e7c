"""How long runs will take."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

FORWARD = 1 / 3
"""Cost of evaluating an image beside that of a training step on it."""


def images_of(args: argparse.Namespace, sizes: Mapping[str, int]) -> float:
    """Images that a run reads, in units of one training step on one image.

    Args:
        args: arguments of ``pretrain`` or ``adapt`` with their defaults
        sizes: images of each domain
    """
    if hasattr(args, "iters_per_epoch"):
        steps = 2 * args.batch_size * args.iters_per_epoch
        return args.epochs * (steps + FORWARD * sum(sizes[code] for code in args.target))
    adapts = hasattr(args, "checkpoint")
    images = sum(sizes[code] for code in (args.target if adapts else args.source))
    evaluated = images * (args.hold_out + adapts)
    return args.epochs * (images * (1 - args.hold_out) + FORWARD * evaluated)


def recorded_speed(out: Path) -> float | None:
    """Images a second of the adaptations in this folder: the median over their epochs, if there are any."""
    speeds = [
        line["images_per_second"]
        for path in out.glob("*/*/*/metrics.jsonl")
        for line in map(json.loads, path.read_text().splitlines())
        if "images_per_second" in line
    ]
    return median(speeds) if speeds else None


def measured_speed(args: argparse.Namespace, steps: int = 2) -> float:
    """Images a second of training steps of this network on random tensors, on this machine's device."""
    import torch

    from tllib_ancon.models.backbones import create_backbone, parse_options
    from tllib_ancon.models.classifier import shot_classifier

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone = create_backbone(args.arch, pretrained=False, options=parse_options(args.arch_option))
    model = shot_classifier(backbone.network, 100, pool_layer=backbone.pool_layer()).to(device).train()
    side = args.resize_size if args.train_resizing == "res." else args.image_size
    batch = args.batch_size if device.type == "cuda" else min(args.batch_size, 8)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    images = torch.rand(batch, len(backbone.preprocessing.mean), side, side, device=device).to(memory_format=layout)

    def step() -> float:
        started = time.perf_counter()
        model(images)[0].square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    step()
    return batch / min(step() for _ in range(steps))


def hours(seconds: float) -> str:
    """``12 min`` or ``3.4 h``"""
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
