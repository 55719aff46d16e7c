"""Rebuild the classifier of a checkpoint by the names that TLLib's scripts, dalib and the authors give its tensors."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.models.bottleneck import BottleneckClassifier
from tllib_ancon.models.checkpoints import Weights, load_into
from tllib_ancon.runtime.errors import BadModel

RENAMED = (
    (r"^((module|_orig_mod|model|net|network)\.)+", ""),
    (r"^G\.", "backbone."),
    (r"^F1\.head\.8\.", "head."),
    (r"^F1\.head\.", "bottleneck."),
    (r"^head_fc\.", "bottleneck.0."),
    (r"^head_bn\.", "bottleneck.1."),
    (r"^fc_final\.", "head."),
    (r"^head\.weight_g$", "head.parametrizations.weight.original0"),
    (r"^head\.weight_v$", "head.parametrizations.weight.original1"),
)
"""What DataParallel, torch.compile and training programs put before every name, and what TLLib's mcd.py and the
authors' code call the parts that other checkpoints call by these names."""

UNUSED = ("adv_head", "F2")
"""Adversarial classifiers."""

BLOCK = (nn.Linear, nn.BatchNorm1d, nn.ReLU)
WITH_TENSORS = (nn.Linear, nn.BatchNorm1d)
LINEAR_HEAD = {""}
TWO_LAYER_HEAD = {"0", "3"}
WEIGHT_NORM_HEAD = {"", "parametrizations.weight"}
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


class _Layout(NamedTuple):
    bottleneck: tuple[type[nn.Module], ...]  # its layers, as in LAYOUTS
    head: set[str]  # its modules that hold tensors
    tensors: Mapping[str, Weights]  # part (backbone, bottleneck, head) -> name within it -> tensor


def recognize(state: Weights) -> _Layout | None:
    """The layout of a checkpoint by the names of its tensors; None if it is not known."""
    tensors: dict[str, dict[str, Tensor]] = {"backbone": {}, "bottleneck": {}, "head": {}}
    for name, tensor in state.items():
        part, _, name_in_part = _canonical(name).partition(".")
        if part in tensors:
            tensors[part][name_in_part] = tensor
        elif part not in UNUSED:
            return None
    if not tensors["backbone"]:
        return None
    bottleneck_modules = _modules_with_tensors(tensors["bottleneck"])
    head_modules = _modules_with_tensors(tensors["head"])
    blocks_of_afn = BLOCK * max(1, len(bottleneck_modules) // 2)
    for bottleneck, head in (*LAYOUTS.values(), (blocks_of_afn, LINEAR_HEAD)):
        with_tensors = {str(index) for index, layer in enumerate(bottleneck) if layer in WITH_TENSORS}
        if bottleneck_modules == with_tensors and head_modules == head:
            return _Layout(bottleneck, head, tensors)
    return None


def _modules_with_tensors(tensors: Weights) -> set[str]:
    return {name.rpartition(".")[0] for name in tensors}


def rebuild_model(
    layout: _Layout, backbone: nn.Module, pool: bool = True, finetune: bool = True
) -> BottleneckClassifier:
    """Build the model that a checkpoint was saved from; in evaluation mode its logits are the same."""
    bottleneck = _sequence(layout.bottleneck, layout.tensors["bottleneck"])
    head = _head(layout, bottleneck)
    # TLLib's backbones keep an unused ImageNet classifier, dalib's and ours do not.
    unused_weights = {name: weight for name, weight in backbone.state_dict().items() if name.startswith("fc.")}
    load_into(backbone, {**layout.tensors["backbone"], **unused_weights}, "the checkpoint's backbone", ("fc.",))
    load_into(bottleneck, layout.tensors["bottleneck"], "the checkpoint's bottleneck")
    load_into(head, layout.tensors["head"], "the checkpoint's head")
    linears = _linears_of(head)
    num_classes = linears[-1].out_features
    features_dim = linears[0].in_features
    return BottleneckClassifier(backbone, num_classes, bottleneck, head, features_dim, pool, finetune)


def _sequence(types: tuple[type[nn.Module], ...], tensors: Weights, inputs: int | None = None) -> nn.Module:
    """Layers of these types with the widths of the checkpoint's tensors; the first Linear takes (B, ``inputs``)."""
    width = inputs
    if not types:
        return nn.Identity()
    layers: list[nn.Module] = []
    for index, layer_type in enumerate(types):
        if layer_type is nn.Linear:
            linear = _linear(tensors, f"{index}.weight", width)
            width = linear.out_features
            layers.append(linear)
        elif layer_type is nn.BatchNorm1d:
            layers.append(nn.BatchNorm1d(width or 0))
        else:
            layers.append(layer_type())
    return nn.Sequential(*layers)


def _head(layout: _Layout, bottleneck: nn.Module) -> nn.Module:
    tensors = layout.tensors["head"]
    width = next((linear.out_features for linear in reversed(_linears_of(bottleneck))), None)
    if layout.head == TWO_LAYER_HEAD:
        return _sequence((nn.Linear, nn.ReLU, nn.Dropout, nn.Linear), tensors, width)
    if layout.head == WEIGHT_NORM_HEAD:
        normalised: nn.Module = weight_norm(_linear(tensors, "parametrizations.weight.original1", width))
        return normalised
    return _linear(tensors, "weight", width)


def _linear(tensors: Weights, name: str, in_features: int | None = None) -> nn.Linear:
    """A linear layer of the shape of a weight (outputs, inputs); ``in_features`` are those of the layer before it."""
    weight = tensors.get(name)
    if weight is None or weight.ndim != 2:
        shape = "missing" if weight is None else tuple(weight.shape)
        raise BadModel(f"the checkpoint's {name} must be a matrix and is {shape}")
    return nn.Linear(in_features or weight.shape[1], len(weight))


def _linears_of(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def _canonical(name: str) -> str:
    """The name that other checkpoints give to a tensor of this name."""
    canonical = name
    for pattern, replacement in RENAMED:
        canonical = re.sub(pattern, replacement, canonical)
    layer = re.fullmatch(r"bottleneck\.(0\.0|[1-9]\d*)\.(fc|bn)\.(\w+)", canonical)  # of TLLib's afn.py
    if layer is None:
        return canonical
    index = 3 * int(layer[1].partition(".")[0])
    if layer[2] == "bn":
        index += 1
    return f"bottleneck.{index}.{layer[3]}"
