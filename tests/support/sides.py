"""Images whose class is the brighter half, which a mirror exchanges, and networks that predict it."""

import numpy as np
import torch
from torch import nn

from tests.support.networks import HALVES

SIDE = 16
LEVEL = {**HALVES, "image_size": SIDE, "workers": 0}


def of_patterns(patterns):
    """Predicts the pattern (3, H, W) that an image is most like."""
    head = nn.Linear(3 * SIDE**2, len(patterns))
    net = nn.Sequential(nn.Conv2d(3, 3, 1, groups=3), nn.Flatten(), head).eval()
    with torch.no_grad():
        net[0].weight.fill_(1)
        net[0].bias.zero_()
        head.weight.copy_(patterns.flatten(1))
        head.bias.zero_()
    return net


def network(sides):
    """Predicts which half of an image is brighter: left or right, or top or bottom."""
    pattern = torch.ones(3, SIDE, SIDE) / 50
    pattern[:, :, SIDE // 2 :] *= -1
    if not sides:
        pattern = pattern.transpose(1, 2)
    return of_patterns(torch.stack([pattern, -pattern]))


def pictures(sides):
    labels = np.arange(48) % 2
    images = np.random.default_rng(0).integers(0, 60, (48, SIDE, SIDE, 3), dtype=np.uint8)
    for image, label in zip(images if sides else images.swapaxes(1, 2), labels, strict=True):
        start = SIDE // 2 * label
        image[:, start : start + SIDE // 2] += 150
    return images, labels
