"""The public ResNets for CIFAR-10 whose weights akamaster/pytorch_resnet_cifar10 gives."""

import torch
from torch import nn
from torch.nn import functional

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Pixels in [0, 1] are normalised by ImageNet's mean and standard deviation, as these networks were trained."""
SHOWN = {"image_size": 32, "norm_mean": MEAN, "norm_std": STD}
"""The same as settings of ``adapt`` and ``predict``."""
CENTRE, SCALE = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))


class Block(nn.Module):
    """Two convolutions beside a shortcut without parameters: every second pixel, new channels zero (option A)."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.added = (width - channels) // 2  # on either side

    def forward(self, inputs):
        shortcut = inputs[:, :, :: self.stride, :: self.stride]
        shortcut = functional.pad(shortcut, (0, 0, 0, 0, self.added, self.added))
        hidden = self.bn1(self.conv1(inputs)).relu()
        return torch.relu(self.bn2(self.conv2(hidden)) + shortcut)


class ResNet(nn.Module):
    """The network of 6 ``blocks`` + 2 layers for 32 × 32 pixels.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, Section 4.2.
    """

    def __init__(self, blocks, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.linear = nn.Linear(64, classes)

    def forward(self, images):
        maps = self.bn1(self.conv1(images)).relu()
        maps = self.layer3(self.layer2(self.layer1(maps)))
        logits = self.linear(maps.mean((2, 3)))
        return logits


def _stage(channels, width, blocks):
    first = Block(channels, width, stride=width // channels)
    return nn.Sequential(first, *(Block(width, width, stride=1) for _ in range(blocks - 1)))


def load(path):
    """The network of one of the published files, such as ``resnet20-12fca82f.th``, ready to predict."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    weights = {name.removeprefix("module."): value for name, value in content["state_dict"].items()}
    blocks = len({name.split(".")[1] for name in weights if name.startswith("layer1.")})
    model = ResNet(blocks, len(weights["linear.bias"]))
    model.load_state_dict(weights)
    return model.eval()


def batches(images, size=500):
    """Images (N, 32, 32, 3), normalised as the networks expect."""
    for part in torch.from_numpy(images).permute(0, 3, 1, 2).split(size):
        yield (part / 255 - CENTRE) / SCALE
