"""Small networks in the layouts of checkpoints of TLLib; networks by a checkpoint and settings."""

import torch
from torch import nn

from tllib_ancon.models.bottleneck import BottleneckClassifier
from tllib_ancon.models.references import refer

K = 7


class Backbone(nn.Module):
    """A map of features, as TLLib's ResNets return; ``classifier`` adds the ImageNet classifier they keep."""

    out_features = 12

    def __init__(self, classifier=False):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU())
        if classifier:
            self.fc = nn.Linear(12, 1000)

    def forward(self, images):
        return self.layers(images)


def randomise(model):
    """Give every tensor a value that a mistake would show, batch-norm statistics included."""
    generator = torch.Generator().manual_seed(1)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            values = torch.rand(tensor.shape, generator=generator)
            if tensor.ndim < 2:
                tensor.copy_(values + 0.1)
            else:
                scale = 4 / tensor[0].numel() ** 0.5
                tensor.copy_((values - 0.4) * scale)
    return model.eval()


def block():
    return nn.Sequential(nn.Linear(12, 9), nn.BatchNorm1d(9), nn.ReLU())


def rebuilt(bottleneck, head, width):
    return BottleneckClassifier(Backbone(), K, bottleneck, head, width)


def cdan():
    return randomise(rebuilt(block(), nn.Linear(9, K), 9)).state_dict()


def network_of(checkpoint, arch, **settings):
    """The network of a checkpoint by these settings."""
    usual = {"arch_option": (), "no_pool": False, "scratch": False}
    return refer(checkpoint=str(checkpoint)).network({"arch": arch, **usual, **settings})
