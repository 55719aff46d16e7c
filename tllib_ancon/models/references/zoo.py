"""A network of timm or torchvision with its ImageNet classifier: ``imagenet`` in place of a checkpoint."""

from torch import nn

from tllib_ancon.models.networks import create_network, parse_options
from tllib_ancon.models.references.reference import ModelRef
from tllib_ancon.runtime.types import Options

IMAGENET = "imagenet"
"""The name that means an architecture with the ImageNet classifier of its model zoo."""


class Zoo(ModelRef):
    """The model zoo's weights of ``arch``; random ones with ``scratch``."""

    def network(self, settings: Options) -> nn.Module:
        return create_network(settings["arch"], None, not settings["scratch"], parse_options(settings["arch_option"]))

    def digest(self) -> str:
        return IMAGENET
