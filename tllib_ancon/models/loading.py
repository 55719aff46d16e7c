"""The model that is adapted or evaluated, out of a checkpoint of any of the known programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tllib_ancon.errors import UserError
from tllib_ancon.given_paths import IMAGENET
from tllib_ancon.models.any_network import find_head
from tllib_ancon.models.backbones import Backbone, create_backbone
from tllib_ancon.models.checkpoints import recognize, require_classes, start_model
from tllib_ancon.models.classifier import BottleneckClassifier, Classifier, shot_classifier
from tllib_ancon.models.networks import create_network, has_own_head
from tllib_ancon.models.state_dicts import load_into, load_state_dict, some_names, without_prefix


def load(
    checkpoint: str | Path,
    arch: str,
    num_classes: int | None = None,
    *,
    arch_options: Mapping[str, Any] | None = None,
    pool: bool = True,
    bottleneck_dropout: float = 0.0,
    scratch: bool = False,
    pretrained_weights: str | Path | None = None,
) -> Classifier:
    """The start of an adaptation.

    Args:
        checkpoint: a file with the weights of a whole network of torchvision or timm, as plain PyTorch, timm's and
            torchvision's training scripts or Lightning save them, or with a model of TLLib's scripts, of dalib, of the
            AnCon authors or of this package; or ``imagenet``
        arch: a name of :func:`~tllib_ancon.models.networks.names`
        num_classes: K of the dataset. Default: that of the checkpoint
        arch_options: keyword arguments of the timm model
        pool: False if the output of a backbone of TLLib's is not to be pooled
        bottleneck_dropout: probability of dropping a feature after the bottleneck, which a checkpoint does not tell
        scratch: ``imagenet`` has random weights instead; the backbone of another checkpoint learns at the full rate
        pretrained_weights: with ``imagenet``, the file of its weights. Default: the model zoo's

    Returns: the classifier; its ``preprocessing`` tells what its images should be like

    Raises:
        UserError: an unknown architecture; a missing or unreadable checkpoint, or one that does not fit (which
            tensors); another number of classes; dropout after a bottleneck that is not there
    """
    if checkpoint == IMAGENET:
        classifier = _imagenet(arch, num_classes, arch_options, scratch, pretrained_weights)
    else:
        classifier = _saved(Path(checkpoint), arch, num_classes, arch_options, pool, finetune=not scratch)
    if bottleneck_dropout:
        if not isinstance(classifier, BottleneckClassifier):
            raise UserError(f"`bottleneck_dropout`: the checkpoint {checkpoint} has no bottleneck; leave it out")
        classifier.drop_features(bottleneck_dropout)
    return classifier


def source_model(
    backbone: Backbone,
    num_classes: int,
    bottleneck_dim: int = 256,
    pool: bool = True,
    bottleneck_dropout: float = 0.0,
) -> BottleneckClassifier:
    """A model to train on the source: SHOT's layers on a backbone, which learns at a tenth of the rate if it is
    pre-trained.

    Args:
        backbone: of :func:`~tllib_ancon.models.backbones.create_backbone`
        num_classes: K
        bottleneck_dim: D, width of the features
        pool: average a feature map of the backbone
        bottleneck_dropout: probability of dropping a feature after the bottleneck
    """
    network, pool_layer = backbone.network, backbone.pool_layer(pool)
    classifier = shot_classifier(network, num_classes, bottleneck_dim, pool_layer, backbone.pretrained)
    classifier.preprocessing = backbone.preprocessing
    if bottleneck_dropout:
        classifier.drop_features(bottleneck_dropout)
    return classifier


def export_state_dict(classifier: Classifier) -> dict[str, Tensor]:
    """The weights in the layout of the checkpoint that the classifier came from, on the CPU.

    Those of a network of timm or torchvision have its own names and load strictly into it, with equal logits; those of
    a model of TLLib's scripts have the names ``backbone.``, ``bottleneck.`` and ``head.``.
    """
    state: dict[str, Tensor] = classifier.state_dict()  # of a type that knows the versions of the network's modules
    for name, tensor in state.items():
        state[name] = tensor.detach().cpu().clone()
    return state


def _saved(
    path: Path,
    arch: str,
    num_classes: int | None,
    options: Mapping[str, Any] | None,
    pool: bool,
    finetune: bool,
) -> Classifier:
    state = load_state_dict(path)
    layout = recognize(state)
    if layout is None:
        return _whole_network(state, path, arch, num_classes, options, finetune)
    backbone = create_backbone(arch, pretrained=False, options=options)
    classifier = start_model(layout, backbone.network, num_classes, pool and not backbone.pools, finetune)
    classifier.preprocessing = backbone.preprocessing
    return classifier


def _imagenet(
    arch: str,
    num_classes: int | None,
    options: Mapping[str, Any] | None,
    scratch: bool,
    weights_file: str | Path | None,
) -> Classifier:
    """A network with its own ImageNet head. Every part learns at the full rate."""
    network = create_network(arch, pretrained=not scratch and weights_file is None, options=options)
    if weights_file is not None:
        load_into(network, without_prefix(load_state_dict(weights_file), network), source=str(weights_file))
    classifier = find_head(network, finetune=False)
    if num_classes not in (None, classifier.num_classes):
        raise UserError(f"`checkpoint` imagenet has {classifier.num_classes} classes, the dataset has {num_classes}")
    return classifier


def _whole_network(
    state: Mapping[str, Tensor],
    path: Path,
    arch: str,
    num_classes: int | None,
    options: Mapping[str, Any] | None,
    finetune: bool,
) -> Classifier:
    if not has_own_head(arch):
        raise UserError(
            f"the layout of the checkpoint {path} is unknown (its tensors: {some_names(state)}). Known for {arch} are "
            "those of TLLib's image classification scripts, of dalib, of the AnCon authors and of this package"
        )
    classifier = find_head(create_network(arch, num_classes, options=options), finetune=finetune)
    tensors = without_prefix(state, classifier.network)
    name = f"{classifier.head_name}.weight"
    if name in tensors and tensors[name].ndim == 2 and len(tensors[name]) != classifier.num_classes:
        found = len(tensors[name])
        require_classes(found, num_classes, name, tensors[name])
        classifier = find_head(create_network(arch, found, options=options), finetune=finetune)
    source = f"checkpoint {path}, read as a whole {arch} because its layout is none of TLLib's scripts,"
    load_into(classifier.network, tensors, source)
    return classifier
