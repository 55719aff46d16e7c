"""How long runs will take."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tllib_ancon.config import ASSUMED, AdaptConfig, PretrainConfig

FORWARD = 1 / 3
"""Cost of evaluating an image beside that of a training step on it."""


def images_of(config: PretrainConfig | AdaptConfig, sizes: Mapping[str, int]) -> float:
    """Images that a run reads, in units of one training step on one image.

    Args:
        config: of the run
        sizes: images of each domain
    """
    if isinstance(config, PretrainConfig) and config.method != "erm":
        assert config.iters_per_epoch is not None
        steps = 2 * config.batch_size * config.iters_per_epoch
        return config.epochs * (steps + FORWARD * sum(sizes[code] for code in config.target))
    adapts = isinstance(config, AdaptConfig)
    images = sum(sizes[code] for code in (config.target if adapts else config.source))
    evaluated = images * (config.hold_out + adapts)
    return config.epochs * (images * (1 - config.hold_out) + FORWARD * evaluated)


def recorded_speed(out: Path) -> float | None:
    """Images a second of the adaptations in this folder: the median over their epochs, if there are any."""
    speeds = [speed for path in out.glob("*/*/*/metrics.jsonl") for speed in _speeds(path)]
    return median(speeds) if speeds else None


def _speeds(path: Path) -> list[float]:
    """Of the epochs of one run; none where its file is damaged, for this is an estimate."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [float(line["images_per_second"]) for line in lines if "images_per_second" in line]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def measured_speed(config: PretrainConfig | AdaptConfig, steps: int = 2) -> float:
    """Images a second of training steps of this network on random tensors, on this machine's device."""
    import torch

    from tllib_ancon.models.backbones import create_backbone
    from tllib_ancon.models.loading import source_model
    from tllib_ancon.models.networks import parse_options

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone = create_backbone(
        config.arch or ASSUMED["arch"], pretrained=False, options=parse_options(config.arch_option or ())
    )
    model = source_model(backbone, 100).to(device).train()
    name = "resize_size" if config.train_resizing == "res." else "image_size"
    side = getattr(config, name) or ASSUMED[name]
    batch = config.batch_size if device.type == "cuda" else min(config.batch_size, 8)
    layout = torch.channels_last if config.channels_last else torch.contiguous_format
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
