"""Tiny networks as people bring them, and images for them: shared by the tests of any model and any input."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

CLASSES = 4
IMAGES = 40
SIDE = 32
PIXELS = np.random.default_rng(0).integers(0, 255, (IMAGES, SIDE, SIDE, 3), dtype=np.uint8)
HALVES = {"norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3}
PREPROCESSING = {**HALVES, "image_size": SIDE}
QUICK = {"epochs": 1, "threads": 1, "workers": 0, "quiet": True}


class Net(nn.Module):
    """Convolution, batch-norm and a head."""

    def __init__(self, num_classes=CLASSES):
        super().__init__()
        torch.manual_seed(0)
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *pooled)
        self.head = nn.Linear(8, num_classes)

    def forward(self, images):
        return self.head(self.body(images))


class Returns(Net):
    """A ``Net`` whose output is a function of its features (B, 8) and logits (B, K)."""

    def __init__(self, form, num_classes=CLASSES):
        super().__init__(num_classes)
        self.form = form

    def forward(self, images):
        features = self.body(images)
        return self.form(features, self.head(features))


def normalised(pixels=PIXELS):
    """The tensors that a network gets with ``PREPROCESSING``."""
    return (torch.from_numpy(pixels).movedim(-1, 1) / 255 - 0.5) / 0.5


def fit(model, batches, lr=1e-2):
    """Train a model on batches of inputs and labels."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for inputs, labels in batches:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def transformer(kind="ViT", **settings):
    """A classifier of transformers of three classes and random weights."""
    transformers = pytest.importorskip("transformers", minversion="5")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**TRANSFORMERS[kind], **settings})
    return getattr(transformers, f"{kind}ForImageClassification")(config).eval()


TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
VIT = {**TINY, "image_size": SIDE, "patch_size": 8, "num_labels": 3}
STAGES = {"hidden_sizes": [8, 8], "depths": [1, 1], "num_labels": 3}
TRANSFORMERS = {
    "ViT": VIT,
    "Dinov2": {**VIT, "mlp_ratio": 1},
    "ResNet": {**STAGES, "embedding_size": 8, "layer_type": "basic"},
}


def state_of(model):
    """A copy of its state, under the names that it has without wrappers."""
    state = copy.deepcopy(model.state_dict())
    return {name.replace("_orig_mod.", "").replace("module.", ""): tensor for name, tensor in state.items()}
