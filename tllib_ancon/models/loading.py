"""Load a source model: a checkpoint of any program, or a network of a model zoo with its ImageNet classifier."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from tllib_ancon.models.checkpoints import Weights, load_into, load_state_dict, without_prefix
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.networks import TIMM, create_backbone, create_network, library_of
from tllib_ancon.models.preprocessing import preprocessing_of, probe_images
from tllib_ancon.models.script_layouts import rebuild_model, recognize
from tllib_ancon.runtime.errors import BadModel, named, network_itself, one_line
from tllib_ancon.runtime.types import Options, Show, silently

IMAGENET = "imagenet"
"""The name that means an architecture with the ImageNet classifier of its model zoo."""


def load(
    checkpoint: str | Path,
    arch: str,
    num_classes: int | None = None,
    *,
    arch_options: Options | None = None,
    pool: bool = True,
    scratch: bool = False,
    show: Show = silently,
) -> Classifier:
    """The source model of an adaptation, whose ``preprocessing`` tells what its images should be like.

    The settings of :class:`~tllib_ancon.config.model.ModelConfig` say what most arguments mean. With ``scratch``,
    ``imagenet`` has random weights and the backbone of another checkpoint learns at the full rate. ``show`` gets lines
    for the user about the checkpoint.
    """
    if checkpoint == IMAGENET:
        network = create_network(arch, None, not scratch, arch_options)
        classifier: Classifier = _classifier(network, finetune=False)
    else:
        state = load_state_dict(checkpoint, show)
        layout = recognize(state)
        if layout is None:
            classifier = _whole_network(state, str(checkpoint), arch, num_classes, arch_options, not scratch, show)
        else:
            backbone = create_backbone(arch, pretrained=False, options=arch_options)
            classifier = rebuild_model(layout, backbone, pool, not scratch)
    if num_classes not in (None, classifier.num_classes):
        raise BadModel(
            f"checkpoint {checkpoint} has {classifier.num_classes} classes, the dataset has {num_classes}",
            "give a checkpoint of the same classes",
        )
    return classifier


def _whole_network(
    state: Weights,
    checkpoint: str,
    arch: str,
    num_classes: int | None,
    arch_options: Options | None,
    finetune: bool,
    show: Show,
) -> Classifier:
    """The network of a model zoo whose own names of tensors are those of the checkpoint."""
    library, _ = library_of(arch)
    if library is None:
        raise BadModel(
            f"the layout of the checkpoint {checkpoint} is unknown (its tensors: {one_line(', '.join(state))})",
            f"for {arch} give one of TLLib's image classification scripts, dalib, the AnCon authors or this package",
        )
    network = create_network(arch, num_classes, options=arch_options)
    classifier = _classifier(network, finetune)
    tensors = without_prefix(state, network, show)
    number = _classes_of(tensors, network, classifier.num_classes)
    if number != classifier.num_classes:
        network = create_network(arch, number, options=arch_options)
        classifier = _classifier(network, finetune)
    options = "" if library != TIMM else f"give its {named('arch_option')}, or "
    advice = f"if the network was changed, {options}pass {network_itself()}, not {named('arch')}"
    load_into(network, tensors, f"checkpoint {checkpoint}, taken for the weights of a {arch},", advice=advice)
    return classifier


def _classifier(network: nn.Module, finetune: bool) -> Classifier:
    """The network with its head, found with black images of the size that its library declares."""
    images = probe_images(network, preprocessing_of(network))
    return as_classifier(network, probe=images, finetune=finetune)


def _classes_of(tensors: Weights, network: nn.Module, num_classes: int) -> int:
    """The number of classes of a checkpoint: the first dimension of those tensors that alone have another one than in
    the network, which is built for ``num_classes``."""
    lengths: set[int] = set()
    for name, expected in network.state_dict().items():
        tensor = tensors.get(name)
        if tensor is None or tensor.ndim == 0 or tensor.shape[1:] != expected.shape[1:]:
            continue
        if len(tensor) != len(expected) == num_classes:
            lengths.add(len(tensor))
    if len(lengths) == 1:
        return lengths.pop()
    return num_classes
