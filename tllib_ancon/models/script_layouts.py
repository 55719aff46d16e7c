"""Rebuild the classifier of a checkpoint by the names that TLLib's scripts, dalib and the authors give its tensors."""

import re
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.models.bottleneck import BottleneckClassifier
from tllib_ancon.models.checkpoints import Weights, load_into
from tllib_ancon.runtime.errors import BadModel, one_line

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

Layers = tuple[type[nn.Module], ...]

BLOCK = (nn.Linear, nn.BatchNorm1d, nn.ReLU)
LINEAR_HEAD = {""}
TWO_LAYER_HEAD = {"0", "3"}
WEIGHT_NORM_HEAD = {"", "parametrizations.weight"}
LAYOUTS: dict[str, tuple[Layers, set[str]]] = {
    "erm": ((), LINEAR_HEAD),
    "cdan": (BLOCK, LINEAR_HEAD),  # also dann, mcc, cc_loss, bsp, adda, fixmatch, self_ensemble, jan, afn; dalib's
    "dan": ((nn.Linear, nn.ReLU, nn.Dropout), LINEAR_HEAD),
    "mdd": ((nn.Identity, *BLOCK, nn.Dropout), TWO_LAYER_HEAD),
    "mdd of dalib": ((*BLOCK, nn.Dropout), TWO_LAYER_HEAD),
    "mcd": ((nn.Dropout, *BLOCK, nn.Dropout, *BLOCK), LINEAR_HEAD),
    "shot": ((nn.Linear, nn.BatchNorm1d), WEIGHT_NORM_HEAD),
    "shot without bottleneck": ((), WEIGHT_NORM_HEAD),
    **{f"afn of {count} blocks": (BLOCK * count, LINEAR_HEAD) for count in range(2, 6)},
}
"""Layers between pooling and head, and modules of the head that hold tensors, by the script that saved them. JAN's and
AFN's dropout leave no trace."""


def rebuild_model(
    state: Weights, create_backbone: Callable[[], nn.Module], pool: bool = True, finetune: bool = True
) -> BottleneckClassifier | None:
    """Build the model that a checkpoint was saved from; in evaluation mode its logits are the same. None if its layout,
    by the names of its tensors, is not known."""
    tensors: dict[str, dict[str, Tensor]] = {"backbone": {}, "bottleneck": {}, "head": {}}
    for name, tensor in state.items():
        part, _, name_in_part = _canonical(name).partition(".")
        if part in tensors:
            tensors[part][name_in_part] = tensor
        elif part not in UNUSED:
            return None
    layers = _layers_of(tensors["bottleneck"], tensors["head"])
    if layers is None or not tensors["backbone"]:
        return None
    try:
        bottleneck = _sequence(layers, tensors["bottleneck"])
        head = _head(tensors["head"])
    except (KeyError, TypeError, ValueError) as error:  # a weight is missing, or no matrix
        raise BadModel(f"the checkpoint's bottleneck or head does not fit its layout ({one_line(error)})") from error
    backbone = create_backbone()
    # TLLib's backbones keep an unused ImageNet classifier, dalib's and ours do not.
    unused_weights = {name: weight for name, weight in backbone.state_dict().items() if name.startswith("fc.")}
    load_into(backbone, {**tensors["backbone"], **unused_weights}, "the checkpoint's backbone", ("fc.",))
    load_into(bottleneck, tensors["bottleneck"], "the checkpoint's bottleneck")
    load_into(head, tensors["head"], "the checkpoint's head")
    linears = [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    num_classes = linears[-1].out_features
    return BottleneckClassifier(backbone, num_classes, bottleneck, head, linears[0].in_features, pool, finetune)


def _layers_of(bottleneck: Weights, head: Weights) -> Layers | None:
    """The layers of a bottleneck with tensors of these names before such a head; None if no script saves both."""
    for layers, modules_of_head in LAYOUTS.values():
        with_tensors = {str(index) for index, layer in enumerate(layers) if layer in (nn.Linear, nn.BatchNorm1d)}
        if _modules_with_tensors(bottleneck) == with_tensors and _modules_with_tensors(head) == modules_of_head:
            return layers
    return None


def _modules_with_tensors(tensors: Weights) -> set[str]:
    return {name.rpartition(".")[0] for name in tensors}


def _sequence(layers: Layers, tensors: Weights) -> nn.Sequential:
    """Layers of these types with the widths of the checkpoint's tensors."""
    built: list[nn.Module] = []
    for index, layer in enumerate(layers):
        if layer is nn.Linear:
            built.append(_linear(tensors[f"{index}.weight"]))
        elif layer is nn.BatchNorm1d:
            built.append(nn.BatchNorm1d(len(tensors[f"{index}.weight"])))
        else:
            built.append(layer())
    return nn.Sequential(*built)


def _head(tensors: Weights) -> nn.Module:
    modules = _modules_with_tensors(tensors)
    if modules == TWO_LAYER_HEAD:
        return _sequence((nn.Linear, nn.ReLU, nn.Dropout, nn.Linear), tensors)
    if modules == WEIGHT_NORM_HEAD:
        normalised: nn.Module = weight_norm(_linear(tensors["parametrizations.weight.original1"]))
        return normalised
    return _linear(tensors["weight"])


def _linear(weight: Tensor) -> nn.Linear:
    """A linear layer of the shape of this weight."""
    outputs, inputs = weight.shape
    return nn.Linear(inputs, outputs)


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
