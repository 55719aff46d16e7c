"""Source models that fail on their target, and trainings that collapse."""

from functools import cache

import numpy as np
import torch
from torch import nn

from tests.support.networks import PREPROCESSING, fit, normalised
from tests.support.small import adapt

CLASSES = 4
LOADED = {**PREPROCESSING, "quiet": True}
TOO_HIGH = {"method": "ancon-auto", "lr": 1000.0}
GENERATOR = torch.Generator().manual_seed(0)
CENTRES = torch.randn(3, 3, 4, 4, generator=GENERATOR)
LABELS = torch.arange(48) % 3
IMAGES = CENTRES[LABELS] + 2 * torch.randn(48, 3, 4, 4, generator=GENERATOR)


def stripes(num_images, brightness, seed):
    """Stripes of any direction, phase and colour. The class is their frequency."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:32, :32] / 32
    angle = np.pi * random.random((num_images, 1, 1))
    phase = 6.28 * random.random(num_images)
    frequency = 2 + 2.2 * (np.arange(num_images) % CLASSES) + 0.4 * random.random(num_images)
    position = np.cos(angle) * columns + np.sin(angle) * rows
    turns = frequency[:, None, None] * position
    angles = 2 * np.pi * turns + phase[:, None, None]
    wave = 0.5 + 0.5 * np.sin(angles)
    colour = 255 * brightness * (0.4 + 0.6 * random.random((num_images, 1, 1, 3)))
    noise = random.normal(0, 11, (num_images, 32, 32, 3))
    return np.clip(wave[..., None] * colour + noise, 0, 255).astype(np.uint8)


@cache
def striped_source_model():
    torch.manual_seed(0)
    first = [nn.Conv2d(3, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    second = [nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    network = nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))
    images = normalised(stripes(320, 1.0, 0))
    labels = torch.arange(320) % CLASSES
    batches = [batch for _ in range(15) for batch in torch.randperm(320).split(32)]
    return fit(network, ((images[batch], labels[batch]) for batch in batches), lr=3e-3)


@cache
def small_source_model():
    torch.manual_seed(0)
    hidden = nn.Linear(48, 6), nn.ReLU()
    network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(6, 3))
    return fit(network, [(IMAGES, LABELS)] * 25)


def collapsing(labels=(0, 1, 2) * 16, **settings):
    """A run whose learning rate is too high for its source model."""
    return adapt(small_source_model(), IMAGES, labels=labels, **{**TOO_HIGH, **settings})
