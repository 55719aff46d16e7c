"""Which network, with which weights."""

from typing import Annotated, Literal

from tllib_ancon.config.settings import DECIDED_LATER, Flag, Settings
from tllib_ancon.config.types import Width


class ModelConfig(Settings):
    """Which network."""

    FLAG = Flag(group="model")

    arch: Annotated[str | None, Flag("-a", common=True)] = None
    """Network: a ResNet of torchvision, any model of timm, timm/NAME, torchvision/NAME, small_cnn, or SHOT's
    shot_lenet. With weights: hf:NAME (image classifier of transformers) or open_clip:NAME/WEIGHTS (zero-shot), by hub
    name or folder."""
    arch_option: Annotated[tuple[str, ...], Flag(metavar="KEY=VALUE")] = DECIDED_LATER
    """options of the network in timm or torchvision, such as pad_type=same"""
    bottleneck_dim: Annotated[Width, Flag(metavar="D")] = DECIDED_LATER
    """width of the bottleneck"""
    no_pool: bool = DECIDED_LATER
    """leave out the pooling after the backbone"""
    scratch: bool = False
    """start without pre-trained weights; the backbone then learns at the full rate"""


class NetworkConfig(Settings):
    """Of which network the weights are, where neither a run nor a library can tell."""

    model: Annotated[str | None, Flag(metavar="MODULE:FUNCTION", group="model", decides=False)] = None
    """Function that returns your network, for the weights of a checkpoint. Its module may lie in the current folder.
    Default: the network that the run records, or the architecture's."""


class StartConfig(NetworkConfig):
    """From which trained model."""

    FLAG = Flag(group="model")

    checkpoint: Annotated[str | None, Flag(metavar="FILE", common=True)] = None
    """Source model: a checkpoint, or the run directory that holds it. imagenet: the network with its own ImageNet
    head. Not needed for a network with weights, hf:NAME or open_clip:NAME/WEIGHTS."""
    class_names: Annotated[str | tuple[str, ...] | None, Flag(metavar="NAME")] = None
    """Names of the model's classes in the order of its outputs: cat dog fox, or a file with a name on each line. Needed
    for open_clip:NAME. Default: from the model's run or hf:NAME."""
    output: Annotated[str | int | None, Flag(metavar="KEY_OR_POSITION")] = None
    """Where the logits (B, K) are in what the model returns: a key of a dict or the name of an attribute, or a position
    in a tuple. from_one_logit and from_probabilities convert these. Default: as in the model's run, else the tensor
    that the model returns, or its logits."""
    views: Annotated[Literal[1, 2], Flag(group="images")] = DECIDED_LATER
    """Views of an image whose predictions are averaged. 2: the image and its mirror; in training without mirrors, the
    image and a shift of it. Training learns from both."""
