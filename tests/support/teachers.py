"""A student that is right for half of its pictures, and teachers that predict by colour."""

import numpy as np
import torch
from torch import nn

import tllib_ancon
from tests.support.networks import HALVES, normalised
from tllib_ancon.data.transforms import Preprocessing

CLASSES = ("red", "green", "blue")
SIDE = 8
IMAGES = 36
LABELS = np.arange(IMAGES) % 3


def pictures():
    """Noise whose strongest colour is the class."""
    images = np.random.default_rng(0).integers(0, 120, (IMAGES, SIDE, SIDE, 3))
    images[np.arange(IMAGES), :, :, LABELS] += 60
    return images.astype(np.uint8)


PICTURES = pictures()


class Student(nn.Sequential):
    """A network that is right for half of the pictures."""

    def __init__(self, names=None):
        torch.manual_seed(21)
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        body = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
        super().__init__(*body, *pooled, nn.Linear(6, 3))
        self[5].weight.data *= 20
        self.class_names = names
        for _ in range(50):
            self(normalised(PICTURES))  # for the statistics of batch-norm
        self.eval()


class Colours(nn.Module):
    """A teacher whose logits are the mean colours, in the order of its classes."""

    def __init__(self, order=(0, 1, 2), names=None, factor=20.0, bias=(0.0, 0.0, 0.0)):
        super().__init__()
        self.head = nn.Linear(3, len(order))
        self.head.weight.data = factor * torch.eye(3)[list(order)]
        self.head.bias.data = torch.tensor(bias)[: len(order)]
        self.class_names = names

    def forward(self, images):
        return self.head(images.mean((2, 3)))


class Of20Pixels(Colours):
    """A teacher that takes images of another size alone, and says so."""

    preprocessing = Preprocessing((0.5,) * 3, (0.5,) * 3, image_size=20, crop_fraction=1.0, val_resizing="default")

    def forward(self, images):
        assert images.shape[2:] == (20, 20)
        return super().forward(images)


def adapt(model=None, **settings):
    model = Student() if model is None else model
    quick = {"epochs": 3, "batch_size": 12, "lr": 0.1, "image_size": SIDE, "workers": 0, "quiet": True, **HALVES}
    return tllib_ancon.adapt(model, PICTURES, labels=LABELS, **{**quick, **settings})
