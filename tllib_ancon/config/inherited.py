"""Settings that a later stage takes from the run that trained its model, and what stands for them without one."""

from __future__ import annotations

from typing import Any

INHERITED = (
    *("arch", "arch_option", "bottleneck_dim", "bottleneck_dropout", "no_pool", "norm_mean", "norm_std"),
    *("image_size", "resize_size", "crop_fraction", "val_resizing"),
)
"""Settings of a model and of the pictures that it knows: a later stage takes them from the run that trained the
model."""

ASSUMED: dict[str, Any] = {
    "arch": "resnet18",
    "arch_option": (),
    "bottleneck_dim": 256,
    "bottleneck_dropout": 0.0,
    "no_pool": False,
    "image_size": 224,
    "resize_size": 224,
    "crop_fraction": 0.875,
}
"""What stands for an inherited setting where there is no run to take it from. (``norm_mean`` and ``norm_std`` follow
the architecture, ``train_resizing`` and ``val_resizing`` the dataset.)"""

OF_THE_NETWORK = ("image_size", "crop_fraction")
"""Settings that a network's own metadata decide before anything is assumed."""
