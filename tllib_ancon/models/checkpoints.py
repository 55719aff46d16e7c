"""The layouts of checkpoints of TLLib's scripts, of dalib, of the authors and of this package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import BottleneckClassifier
from tllib_ancon.models.state_dicts import load_into
from tllib_ancon.pooling import AveragePool

WRAPPERS = ("module.", "_orig_mod.", "model.")
"""What DataParallel, torch.compile and training programs put before every name."""

RENAMED = (
    ("G.", "backbone."),
    ("F1.head.8.", "head."),
    ("F1.head.", "bottleneck."),
    ("head_fc.", "bottleneck.0."),
    ("head_bn.", "bottleneck.1."),
    ("fc_final.", "head."),
)
"""What TLLib's mcd.py and the authors' code call the parts that other checkpoints call by these names."""

UNUSED = ("adv_head.", "F2.")
"""Adversarial classifiers."""

LINEAR, BATCH_NORM, RELU, DROPOUT, NOTHING = "linear", "batch_norm", "relu", "dropout", "nothing"
BLOCK = (LINEAR, BATCH_NORM, RELU)
BOTTLENECKS = {
    "erm": (),
    "cdan": BLOCK,  # also dann, mcc, cc_loss, bsp, adda, fixmatch, self_ensemble, jan, afn; dalib's
    "dan": (LINEAR, RELU, DROPOUT),
    "mdd": (NOTHING, *BLOCK, DROPOUT),
    "mdd of dalib": (*BLOCK, DROPOUT),
    "mcd": (DROPOUT, *BLOCK, DROPOUT, *BLOCK),
    "shot": (LINEAR, BATCH_NORM),
    "shot without bottleneck": (),
}
"""Layers between pooling and head, by the script that saved them. JAN's and AFN's dropout leave no trace."""

LINEAR_HEAD, TWO_LAYER_HEAD, WEIGHT_NORM_HEAD = {""}, {"0", "3"}, {"", "parametrizations.weight"}
HEADS = {
    "mdd": TWO_LAYER_HEAD,
    "mdd of dalib": TWO_LAYER_HEAD,
    "shot": WEIGHT_NORM_HEAD,
    "shot without bottleneck": WEIGHT_NORM_HEAD,
}
"""Modules of the head that hold tensors; one Linear where nothing is said."""


@dataclass(frozen=True)
class Layout:
    """What a checkpoint holds.

    Attributes:
        name: key of :data:`BOTTLENECKS`, or ``afn`` for several of its blocks
        bottleneck: its layers
        num_classes: K
        features_dim: dimension of the features that the head gets
        tensors: part (``backbone``, ``bottleneck``, ``head``) -> name within the part -> tensor
    """

    name: str
    bottleneck: tuple[str, ...]
    num_classes: int
    features_dim: int
    tensors: Mapping[str, Mapping[str, Tensor]]


def recognize(state: Mapping[str, Tensor]) -> Layout | None:
    """Tell from the names and shapes of its tensors what a checkpoint holds; None if its layout is not known."""
    tensors = _by_part(state)
    places = _modules(tensors["bottleneck"]), _modules(tensors["head"])
    blocks = max(1, len(places[0]) // 2)
    candidates = {**BOTTLENECKS, "afn": BLOCK * blocks}
    for name, bottleneck in candidates.items():
        if places == (_places(bottleneck), HEADS.get(name, LINEAR_HEAD)) and tensors["backbone"]:
            num_classes, features_dim = _sizes(tensors["head"])
            return Layout(name, bottleneck, num_classes, features_dim, tensors)
    return None


def start_model(
    layout: Layout, backbone: nn.Module, num_classes: int | None = None, pool: bool = True, finetune: bool = True
) -> BottleneckClassifier:
    """Build the model that a checkpoint was saved from; in evaluation mode its logits are the same.

    Args:
        layout: of :func:`recognize`
        backbone: the network whose weights are in the checkpoint; they are loaded into it. An ImageNet classifier
            ``fc`` may be missing on either side
        num_classes: K of the dataset. Default: that of the checkpoint
        pool: average a feature map (B, C, H, W) of the backbone; features (B, C) are left alone. Default: True
        finetune: the backbone learns at a tenth of the rate. Default: True

    Returns: the classifier, with dropout where the layout tells that the script had it

    Raises:
        UserError: another number of classes, tensors that do not fit (which, both shapes)
    """
    name = _head_weights(layout.tensors["head"])[1]
    require_classes(layout.num_classes, num_classes, f"head.{name}", layout.tensors["head"][name])
    bottleneck, features_dim = _build_bottleneck(layout)
    head = _build_head(layout, features_dim)
    _load_part(backbone, _with_own_classifier(backbone, layout.tensors["backbone"]), "backbone")
    _load_part(bottleneck, layout.tensors["bottleneck"], "bottleneck")
    _load_part(head, layout.tensors["head"], "head")
    pool_layer = AveragePool() if pool else nn.Identity()
    return BottleneckClassifier(backbone, layout.num_classes, bottleneck, head, features_dim, pool_layer, finetune)


def require_classes(found: int, wanted: int | None, name: str, weight: Tensor) -> None:
    """Refuse a checkpoint of another number of classes, the rows of this weight of its head.

    Raises:
        UserError: both numbers, both shapes
    """
    if wanted is not None and found != wanted:
        shape = tuple(weight.shape)
        raise UserError(
            f"the checkpoint is for {found} classes, the dataset has {wanted} ({name} has shape {shape}, expected "
            f"{(wanted, *shape[1:])}); give a checkpoint of the same classes"
        )


def _by_part(state: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {"backbone": {}, "bottleneck": {}, "head": {}, "": {}}
    for name, tensor in _unwrapped(state).items():
        name = _canonical(name)
        part, _, rest = name.partition(".")
        if not name.startswith(UNUSED):
            parts[part if part in parts else ""][rest] = tensor
    if parts.pop(""):
        return {part: {} for part in parts}
    return parts


def _unwrapped(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    for wrapper in WRAPPERS:
        if state and all(name.startswith(wrapper) for name in state):
            return _unwrapped({name.removeprefix(wrapper): tensor for name, tensor in state.items()})
    return state


def _canonical(name: str) -> str:
    """This package's name of a tensor."""
    for theirs, ours in RENAMED:
        if name.startswith(theirs):
            name = ours + name.removeprefix(theirs)
            break
    block = re.fullmatch(r"bottleneck\.(0\.0|[1-9]\d*)\.(fc|bn)\.(\w+)", name)  # TLLib's afn.py
    if block:
        index = 3 * int(block[1].partition(".")[0]) + (block[2] == "bn")
        name = f"bottleneck.{index}.{block[3]}"
    name = re.sub(r"^head\.weight_g$", "head.parametrizations.weight.original0", name)
    return re.sub(r"^head\.weight_v$", "head.parametrizations.weight.original1", name)


def _modules(tensors: Mapping[str, Tensor]) -> set[str]:
    return {name.rpartition(".")[0] for name in tensors}


def _places(layers: tuple[str, ...]) -> set[str]:
    """Where in a Sequential of these layers there are tensors."""
    return {str(index) for index, layer in enumerate(layers) if layer in (LINEAR, BATCH_NORM)}


def _sizes(head: Mapping[str, Tensor]) -> tuple[int, int]:
    """Outputs and inputs of a head."""
    first, last = _head_weights(head)
    return _shape(head, last)[0], _shape(head, first)[1]


def _head_weights(head: Mapping[str, Tensor]) -> tuple[str, str]:
    """Names of the weights of a head's first and last layer."""
    if "3.weight" in head:
        return "0.weight", "3.weight"
    name = "weight" if {"weight", "0.weight"} & set(head) else "parametrizations.weight.original1"
    return name, name


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Shape of a Linear's weight."""
    if name not in tensors or tensors[name].ndim != 2:
        found = tuple(tensors[name].shape) if name in tensors else "missing"
        raise UserError(f"the checkpoint's {name} should be a matrix and is {found}")
    outputs, inputs = tensors[name].shape
    return outputs, inputs


def _build_bottleneck(layout: Layout) -> tuple[nn.Module, int]:
    tensors = layout.tensors["bottleneck"]
    width = layout.features_dim
    layers: list[nn.Module] = []
    for index, layer in enumerate(layout.bottleneck):
        if layer == LINEAR:
            width, inputs = _shape(tensors, f"{index}.weight")
            layers.append(nn.Linear(inputs, width))
        elif layer == BATCH_NORM:
            layers.append(nn.BatchNorm1d(width))
        else:
            layers.append({RELU: nn.ReLU, DROPOUT: nn.Dropout, NOTHING: nn.Identity}[layer]())
    return (nn.Sequential(*layers) if layers else nn.Identity()), width


def _build_head(layout: Layout, features_dim: int) -> nn.Module:
    kind = HEADS.get(layout.name, LINEAR_HEAD)
    if kind == TWO_LAYER_HEAD:
        width = _shape(layout.tensors["head"], "0.weight")[0]
        layers = nn.Linear(features_dim, width), nn.ReLU(), nn.Dropout(), nn.Linear(width, layout.num_classes)
        return nn.Sequential(*layers)
    head = nn.Linear(features_dim, layout.num_classes)
    return weight_norm(head) if kind == WEIGHT_NORM_HEAD else head


def _with_own_classifier(backbone: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """TLLib's backbones keep an unused ImageNet classifier, dalib's and ours do not: it is never loaded."""
    own = {name: tensor for name, tensor in backbone.state_dict().items() if name.startswith("fc.")}
    return {**own, **{name: tensor for name, tensor in tensors.items() if not name.startswith("fc.")}}


def _load_part(part: nn.Module, tensors: Mapping[str, Tensor], name: str) -> None:
    expected = part.state_dict()
    counters = {key for key in tensors if key.endswith("num_batches_tracked") and key not in expected}
    load_into(part, {key: tensors[key] for key in tensors if key not in counters}, f"the checkpoint's {name}")
