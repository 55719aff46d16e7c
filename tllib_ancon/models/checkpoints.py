"""Load a model from a checkpoint of TLLib's scripts, dalib, the authors, this package, or any program that saves a
whole network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import BottleneckClassifier, Classifier, as_classifier
from tllib_ancon.models.networks import create_backbone, create_network, library_of
from tllib_ancon.models.state_dicts import load_into, load_state_dict, some_names, without_prefix

IMAGENET = "imagenet"
"""The checkpoint that stands for an architecture with the ImageNet classifier of its model zoo."""

WRAPPERS = re.compile(r"((module|_orig_mod|model)\.)*")
"""What DataParallel, torch.compile and training programs put before every name."""

RENAMED = (
    (r"^G\.", "backbone."),
    (r"^F1\.head\.8\.", "head."),
    (r"^F1\.head\.", "bottleneck."),
    (r"^head_fc\.", "bottleneck.0."),
    (r"^head_bn\.", "bottleneck.1."),
    (r"^fc_final\.", "head."),
    (r"^head\.weight_g$", "head.parametrizations.weight.original0"),
    (r"^head\.weight_v$", "head.parametrizations.weight.original1"),
)
"""What TLLib's mcd.py and the authors' code call the parts that other checkpoints call by these names."""

UNUSED = ("adv_head", "F2")
"""Adversarial classifiers."""

BLOCK = (nn.Linear, nn.BatchNorm1d, nn.ReLU)
LINEAR_HEAD, TWO_LAYER_HEAD, WEIGHT_NORM_HEAD = {""}, {"0", "3"}, {"", "parametrizations.weight"}
LAYOUTS: dict[str, tuple[tuple[type[nn.Module], ...], set[str]]] = {
    "erm": ((), LINEAR_HEAD),
    "cdan": (BLOCK, LINEAR_HEAD),  # also dann, mcc, cc_loss, bsp, adda, fixmatch, self_ensemble, jan, afn; dalib's
    "dan": ((nn.Linear, nn.ReLU, nn.Dropout), LINEAR_HEAD),
    "mdd": ((nn.Identity, *BLOCK, nn.Dropout), TWO_LAYER_HEAD),
    "mdd of dalib": ((*BLOCK, nn.Dropout), TWO_LAYER_HEAD),
    "mcd": ((nn.Dropout, *BLOCK, nn.Dropout, *BLOCK), LINEAR_HEAD),
    "shot": ((nn.Linear, nn.BatchNorm1d), WEIGHT_NORM_HEAD),
    "shot without bottleneck": ((), WEIGHT_NORM_HEAD),
}
"""Layers between pooling and head, and modules of the head that hold tensors, by the script that saved them. JAN's and
AFN's dropout leave no trace."""


class Layout(NamedTuple):
    """What a checkpoint holds."""

    bottleneck: tuple[type[nn.Module], ...]  # its layers, as in LAYOUTS
    head: set[str]  # its modules that hold tensors
    tensors: Mapping[str, Mapping[str, Tensor]]  # part (backbone, bottleneck, head) -> name within it -> tensor


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
    """The source model of an adaptation, whose ``preprocessing`` tells what its images should be like.

    The settings of :class:`~tllib_ancon.config.ModelConfig` say what most arguments mean. With ``scratch``,
    ``imagenet`` has random weights and the backbone of another checkpoint learns at the full rate.
    """
    if checkpoint == IMAGENET:
        network = create_network(arch, None, not scratch and pretrained_weights is None, arch_options)
        if pretrained_weights is not None:
            weights = without_prefix(load_state_dict(pretrained_weights), network)
            load_into(network, weights, source=str(pretrained_weights))
        classifier = as_classifier(network, finetune=False)
        if num_classes not in (None, classifier.num_classes):
            found = f"`checkpoint` imagenet has {classifier.num_classes} classes"
            raise UserError(f"{found}, the dataset has {num_classes}")
    else:
        state = load_state_dict(checkpoint)
        if layout := recognize(state):
            backbone = create_backbone(arch, pretrained=False, options=arch_options)
            classifier = rebuild_model(layout, backbone, num_classes, pool, not scratch)
        elif library_of(arch)[0] is None:
            raise UserError(
                f"the layout of the checkpoint {checkpoint} is unknown (its tensors: {some_names(state)}). Known for "
                f"{arch} are those of TLLib's image classification scripts, of dalib, of the AnCon authors and of this "
                "package"
            )
        else:
            network = create_network(arch, num_classes, options=arch_options)
            classifier = as_classifier(network, finetune=not scratch)
            tensors = without_prefix(state, network)
            name = f"{getattr(classifier, 'head_name', None)}.weight"
            if name in tensors and tensors[name].ndim == 2 and len(tensors[name]) != classifier.num_classes:
                _require_classes(num_classes, name, tensors[name])
                network = create_network(arch, len(tensors[name]), options=arch_options)
                classifier = as_classifier(network, finetune=not scratch)
            source = f"checkpoint {checkpoint}, taken for the weights of a {arch},"
            load_into(network, tensors, source)
    if bottleneck_dropout:
        if not isinstance(classifier, BottleneckClassifier):
            raise UserError(f"`bottleneck_dropout`: the checkpoint {checkpoint} has no bottleneck; leave it out")
        classifier.drop_features(bottleneck_dropout)
    return classifier


def recognize(state: Mapping[str, Tensor]) -> Layout | None:
    """Tell from the names of its tensors what a checkpoint holds; None if its layout is not known."""
    wrapper = str(WRAPPERS.match(next(iter(state), ""))[0])  # type: ignore[index]
    tensors: dict[str, dict[str, Tensor]] = {"backbone": {}, "bottleneck": {}, "head": {}}
    for name, tensor in state.items():
        part, _, rest = _canonical(name.removeprefix(wrapper)).partition(".")
        if part in tensors:
            tensors[part][rest] = tensor
        elif part not in UNUSED:
            return None
    if not tensors["backbone"]:
        return None
    places = [{name.rpartition(".")[0] for name in tensors[part]} for part in ("bottleneck", "head")]
    blocks = {"afn": (BLOCK * max(1, len(places[0]) // 2), LINEAR_HEAD)}
    for bottleneck, head in {**LAYOUTS, **blocks}.values():
        if places == [{str(i) for i, layer in enumerate(bottleneck) if layer in BLOCK[:2]}, head]:
            return Layout(bottleneck, head, tensors)
    return None


def rebuild_model(
    layout: Layout, backbone: nn.Module, num_classes: int | None = None, pool: bool = True, finetune: bool = True
) -> BottleneckClassifier:
    """Build the model that a checkpoint was saved from; in evaluation mode its logits are the same.

    The checkpoint's weights are loaded into ``backbone``, where an ImageNet classifier ``fc`` may be missing on either
    side. There is dropout where the layout tells that the script had it.
    """
    tensors = dict(layout.tensors)

    def linear(part: str, name: str, inputs: int = 0) -> nn.Linear:
        weight = tensors[part].get(name)
        if weight is None or weight.ndim != 2:
            found = "missing" if weight is None else tuple(weight.shape)
            raise UserError(f"the checkpoint's {name} should be a matrix and is {found}")
        return nn.Linear(inputs or weight.shape[1], len(weight))

    layers: list[nn.Module] = []
    width = 0  # of the bottleneck
    for index, layer in enumerate(layout.bottleneck):
        if layer is nn.Linear:
            layers.append(linear("bottleneck", f"{index}.weight"))
            width = len(tensors["bottleneck"][f"{index}.weight"])
        else:
            layers.append(layer(width) if layer is nn.BatchNorm1d else layer())
    bottleneck = nn.Sequential(*layers) if layers else nn.Identity()
    head: nn.Module
    if layout.head == TWO_LAYER_HEAD:
        first, last = linear("head", "0.weight", width), "3.weight"
        head = nn.Sequential(first, nn.ReLU(), nn.Dropout(), linear("head", last, first.out_features))
    else:
        last = "parametrizations.weight.original1" if layout.head == WEIGHT_NORM_HEAD else "weight"
        head = first = linear("head", last, width)
        head = weight_norm(head) if layout.head == WEIGHT_NORM_HEAD else head
    _require_classes(num_classes, f"head.{last}", tensors["head"][last])
    own = {name: tensor for name, tensor in backbone.state_dict().items() if name.startswith("fc.")}
    theirs = {name: tensor for name, tensor in tensors["backbone"].items() if not name.startswith("fc.")}
    tensors["backbone"] = theirs | own  # TLLib's keep an unused ImageNet classifier, dalib's and ours do not
    for part, name in ((backbone, "backbone"), (bottleneck, "bottleneck"), (head, "head")):
        load_into(part, tensors[name], f"the checkpoint's {name}")
    classes = len(tensors["head"][last])
    return BottleneckClassifier(backbone, classes, bottleneck, head, first.in_features, pool, finetune)


def _canonical(name: str) -> str:
    """This package's name of a tensor."""
    for theirs, ours in RENAMED:
        name = re.sub(theirs, ours, name)
    if block := re.fullmatch(r"bottleneck\.(0\.0|[1-9]\d*)\.(fc|bn)\.(\w+)", name):  # TLLib's afn.py
        index = 3 * int(block[1].partition(".")[0]) + (block[2] == "bn")
        name = f"bottleneck.{index}.{block[3]}"
    return name


def _require_classes(wanted: int | None, name: str, weight: Tensor) -> None:
    """Refuse a checkpoint of another number of classes, the rows of this weight of its head."""
    found, *rest = weight.shape
    if wanted is not None and found != wanted:
        raise UserError(
            f"the checkpoint is for {found} classes, the dataset has {wanted} ({name} has shape {tuple(weight.shape)}, "
            f"expected {(wanted, *rest)}); give a checkpoint of the same classes"
        )
