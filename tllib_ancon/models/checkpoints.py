"""Checkpoints of TLLib's scripts, of dalib, of the authors and of this package, as a model to start from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.models.weights import load_into
from tllib_ancon.toolkit.networks import AveragePool

MCD_PARTS = {"G", "F1", "F2"}
"""TLLib's mcd.py saves three state dicts: the backbone and two classifiers, of which the first is used."""

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


class Parts(NamedTuple):
    """A model to start from, with its weights."""

    backbone: nn.Module
    pool_layer: nn.Module
    bottleneck: nn.Module
    head: nn.Module
    features_dim: int


def load_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict; no code of the file is run.

    Args:
        path: a file of ``torch.save``, or .safetensors

    Returns: name -> tensor, on the CPU. TLLib's mcd.py saves three state dicts; their names get the prefixes
        ``G.``, ``F1.`` and ``F2.``

    Raises:
        UserError: no file, an unreadable one, or one that holds something other than tensors (what)
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"checkpoint {path} is not a file" if path.exists() else f"checkpoint {path} does not exist")
    if path.stat().st_size == 0:
        raise UserError(f"checkpoint {path} is empty")
    content = _read(path)
    _require_plain_tensors(content, path)
    if isinstance(content, Mapping) and set(content) == MCD_PARTS and all(map(_is_state_dict, content.values())):
        return {f"{part}.{name}": state[name] for part, state in content.items() for name in state}
    if not _is_state_dict(content):
        raise UserError(f"checkpoint {path} is not a plain state dict but {_describe(content)}")
    return dict(content)


def recognize(state: Mapping[str, Tensor]) -> Layout:
    """Tell from the names and shapes of its tensors what a checkpoint holds.

    Raises:
        UserError: none of the known layouts
    """
    tensors = _by_part(state)
    places = _modules(tensors["bottleneck"]), _modules(tensors["head"])
    blocks = max(1, len(places[0]) // 2)
    candidates = {**BOTTLENECKS, "afn": BLOCK * blocks}
    for name, bottleneck in candidates.items():
        if places == (_places(bottleneck), HEADS.get(name, LINEAR_HEAD)) and tensors["backbone"]:
            num_classes, features_dim = _sizes(tensors["head"])
            return Layout(name, bottleneck, num_classes, features_dim, tensors)
    raise UserError(
        f"the layout of the checkpoint is unknown (its tensors: {_some(state)}). Known are those of TLLib's "
        "image classification scripts, of dalib, of the AnCon authors and of this package; the weights of a "
        "backbone alone go to --pretrained-weights"
    )


def start_model(state: Mapping[str, Tensor], backbone: nn.Module, num_classes: int, pool: bool | None = None) -> Parts:
    """Build the model that a checkpoint was saved from; in evaluation mode its logits are the same.

    Args:
        state: of :func:`load_state_dict`
        backbone: the network whose weights are in ``state``; they are loaded into it. An ImageNet classifier
            ``fc`` may be missing on either side
        num_classes: K of the dataset
        pool: False if the backbone's output is not to be pooled (``--no-pool``). Default: a feature map
            (B, C, H, W) is averaged, features (B, C) are left alone

    Returns: the parts, with dropout where the layout tells that the script had it

    Raises:
        UserError: an unknown layout, another number of classes, tensors that do not fit (which, both shapes)
    """
    layout = recognize(state)
    if layout.num_classes != num_classes:
        name = _head_weights(layout.tensors["head"])[1]
        shape = tuple(layout.tensors["head"][name].shape)
        raise UserError(
            f"the checkpoint is for {layout.num_classes} classes, the dataset has {num_classes} (head.{name} has shape "
            f"{shape}, expected {(num_classes, *shape[1:])}); give a checkpoint of the same classes"
        )
    bottleneck, features_dim = _build_bottleneck(layout)
    head = _build_head(layout, features_dim)
    _load_part(backbone, _with_own_classifier(backbone, layout.tensors["backbone"]), "backbone")
    _load_part(bottleneck, layout.tensors["bottleneck"], "bottleneck")
    _load_part(head, layout.tensors["head"], "head")
    pool_layer = nn.Identity() if pool is False else AveragePool()
    return Parts(backbone, pool_layer, bottleneck, head, features_dim)


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        culprit = re.search(r"GLOBAL (\S+)", str(error))
        if culprit is None:
            raise UserError(f"checkpoint {path} cannot be read: it is damaged, or no file of torch.save") from error
        raise UserError(
            f"checkpoint {path} is not a plain state dict: it holds {culprit[1]}, and reading that would run "
            "code of the file. Save the weights alone: torch.save(model.state_dict(), FILE)"
        ) from error
    except Exception as error:  # damaged bytes can lead the readers to any error
        raise UserError(f"checkpoint {path} cannot be read: it is damaged or incomplete ({one_line(error)})") from error


def _require_plain_tensors(content: Any, path: Path, prefix: str = "") -> None:
    """Refuse tensors that cannot be copied into a network, or whose numbers are not all in the file."""
    if not isinstance(content, Mapping):
        return
    for name, value in content.items():
        if isinstance(value, Mapping):
            _require_plain_tensors(value, path, f"{prefix}{name}.")
        elif isinstance(value, Tensor):
            problem = _peculiarity(value)
            if problem:
                raise UserError(
                    f"checkpoint {path}: its tensor {prefix}{name} {problem}; save plain tensors, "
                    "torch.save(model.state_dict(), FILE)"
                )


def _peculiarity(tensor: Tensor) -> str | None:
    if tensor.is_meta:
        return "is on the device meta and has no numbers"
    if tensor.is_quantized:
        return "is quantised"
    if tensor.layout != torch.strided:
        return "is sparse"
    if tensor.is_complex():
        return "is complex"
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return f"has shape {tuple(tensor.shape)}, and the file holds fewer numbers"
    return None


def _is_state_dict(content: Any) -> bool:
    return (
        isinstance(content, Mapping)
        and len(content) > 0
        and all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items())
    )


def _describe(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    if not content:
        return "an empty dict"
    inner = next((name for name, value in content.items() if _is_state_dict(value)), None)
    hint = "" if inner is None else f"; save the entry {inner!r} by itself"
    return f"a dict with the entries {_some(content)}{hint}"


def _some(entries: Mapping[Any, Any], most: int = 6) -> str:
    names = [str(name) for name in entries]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _by_part(state: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {"backbone": {}, "bottleneck": {}, "head": {}, "": {}}
    data_parallel = all(name.startswith("module.") for name in state)
    for name, tensor in state.items():
        name = _canonical(name.removeprefix("module.") if data_parallel else name)
        part, _, rest = name.partition(".")
        if not name.startswith(UNUSED):
            parts[part if part in parts else ""][rest] = tensor
    if parts.pop(""):
        return {part: {} for part in parts}
    return parts


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
