"""Load checkpoints of TLLib's scripts, dalib, the authors, this package, or any program into a network.

No code of a file runs. An error names the tensors that do not fit."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tllib_ancon.models.classifier import BottleneckClassifier
from tllib_ancon.runtime.errors import UserError, one_line, reading

MCD_PARTS = {"G", "F1", "F2"}
"""TLLib's mcd.py saves three state dicts: the backbone and two classifiers. The first classifier is used."""

ENTRIES = (
    *("state_dict_ema", "model_ema", "ema_state_dict", "ema", "params_ema"),
    *("state_dict", "model_state_dict", "model", "network", "net", "model_state", "weights", "params"),
)
"""Where training programs keep the weights in a checkpoint, those of timm, torchvision and Lightning among them. As
timm does, the exponential moving average of the weights is taken where there is one."""

COUNTERS = ("num_batches_tracked", "total_ops", "total_params")
"""Last words of names that hold no weights: batches seen by batch-norm, and what profilers leave behind."""

SAVE = "torch.save(model.state_dict(), FILE)"

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
    bottleneck: tuple[type[nn.Module], ...]  # its layers, as in LAYOUTS
    head: set[str]  # its modules that hold tensors
    tensors: Mapping[str, Mapping[str, Tensor]]  # part (backbone, bottleneck, head) -> name within it -> tensor


def load_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the state dict in a file of ``torch.save`` or .safetensors; no code of the file is run. It is the content or
    one of the :data:`ENTRIES`."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"checkpoint {path} is not a file; give a file or a run directory")
    plain: list[Any] = [argparse.Namespace, *numpy_numbers()]  # timm's and torchvision's arguments; scores
    with reading(path, "a checkpoint", f"; save the weights alone: {SAVE}"), torch.serialization.safe_globals(plain):
        is_safe = path.suffix == ".safetensors"
        content: Any = load_file(path) if is_safe else torch.load(path, map_location="cpu", weights_only=True)
    entries = content if isinstance(content, Mapping) else {}
    if set(entries) == MCD_PARTS and all(map(_is_state_dict, entries.values())):
        content = {f"{part}.{name}": state[name] for part, state in entries.items() for name in state}
    state = _weights_among(content)
    if not state:
        names = one_line(", ".join(map(str, entries)))
        what = f"a dict with the entries {names}" if names else f"a {type(content).__name__}"
        raise UserError(f"checkpoint {path} is not a plain state dict but {what}; save the weights alone: {SAVE}")
    for name, tensor in state.items():
        odd = tensor.is_meta or tensor.is_quantized or tensor.layout != torch.strided or tensor.is_complex()
        if odd or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise UserError(
                f"checkpoint {path}: its tensor {one_line(name)} {tuple(tensor.shape)} is sparse, quantised, "
                f"complex or without all its numbers; save plain tensors, {SAVE}"
            )
    return state


def numpy_numbers() -> list[Any]:
    """What a pickled number of NumPy names: its type, and a function that makes it of bytes; none runs code."""
    scalar = np.float64(0).__reduce__()[0]
    kinds = {type(np.dtype(kind)) for kind in (np.bool_, *np.sctypeDict.values()) if np.dtype(kind).kind in "biuf"}
    return [scalar, (scalar, "numpy.core.multiarray.scalar"), np.dtype, *kinds]


def _weights_among(content: Any) -> dict[str, Tensor]:
    """A state dict: the content, one of its :data:`ENTRIES`, one of those of an entry, or the only one there is."""
    if _is_state_dict(content):
        return dict(content)
    entries = content if isinstance(content, Mapping) else {}
    named = [entries[name] for name in ENTRIES if isinstance(entries.get(name), Mapping)]
    inner = [entry[name] for entry in named for name in (*ENTRIES, "module") if name in entry]
    states = [state for state in (*named, *inner) if _is_state_dict(state)]
    if not states:
        states = [entry for entry in entries.values() if _is_state_dict(entry)]
        states = states if len(states) == 1 else []
    return dict(states[0]) if states else {}


def _is_state_dict(content: Any) -> bool:
    if not isinstance(content, Mapping) or not content:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items())


def without_prefix(state: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network without the prefix of a program; of two copies the one whose prefix says ``ema``."""
    names = [name for name in network.state_dict() if not name.endswith(COUNTERS)]
    first = names[0] if names else ""
    prefixes = {name.removesuffix(first) for name in state if name == first or name.endswith(f".{first}")}
    counts = {prefix: sum(prefix + name in state for name in names) for prefix in sorted(prefixes)}
    best = [prefix for prefix in counts if counts[prefix] == max(counts.values())]
    averages = [prefix for prefix in best if "ema" in prefix]
    if len(best) > 1 and len(averages) != 1:
        raise UserError(f"the checkpoint holds several networks, {', '.join(map(repr, best))}; save one alone: {SAVE}")
    prefix = next(iter(averages or best), "")
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def load_into(network: nn.Module, state: Mapping[str, Tensor], source: str, ignore: tuple[str, ...] = ()) -> None:
    """Load ``state`` completely, or list the differences; ``ignore`` are prefixes that the network need not have."""
    expected = network.state_dict()
    problems = [f"{name} is missing" for name in sorted(set(expected) - set(state)) if not name.endswith(COUNTERS)]
    for name, tensor in state.items():
        if name not in expected:
            if not name.startswith(ignore) and not name.endswith(COUNTERS):
                problems.append(f"{name} is not part of the network")
        elif tensor.shape != expected[name].shape:
            problems.append(f"{name} has shape {tuple(tensor.shape)}, the network {tuple(expected[name].shape)}")
        elif expected[name].is_floating_point() and not tensor.is_floating_point():
            problems.append(f"{name} has type {tensor.dtype}, the network {expected[name].dtype}")
        else:
            expected[name] = tensor  # keeps the versions of the network's modules
    if problems:
        raise UserError(
            f"{source} does not fit the network: {one_line('; '.join(problems))}. Give the `arch` that it was trained "
            "with"
        )
    network.load_state_dict(expected)


def recognize(state: Mapping[str, Tensor]) -> Layout | None:
    """The content of a checkpoint by the names of its tensors; None if its layout is not known."""
    tensors: dict[str, dict[str, Tensor]] = {"backbone": {}, "bottleneck": {}, "head": {}}
    for name, tensor in state.items():
        part, _, rest = _canonical(name).partition(".")
        if part in tensors:
            tensors[part][rest] = tensor
        elif part not in UNUSED:
            return None
    if not tensors["backbone"]:
        return None
    places = [{name.rpartition(".")[0] for name in tensors[part]} for part in ("bottleneck", "head")]
    afn = BLOCK * max(1, len(places[0]) // 2), LINEAR_HEAD
    for bottleneck, head in (*LAYOUTS.values(), afn):
        if places == [{str(i) for i, layer in enumerate(bottleneck) if layer in BLOCK[:2]}, head]:
            return Layout(bottleneck, head, tensors)
    return None


def rebuild_model(
    layout: Layout, backbone: nn.Module, pool: bool = True, finetune: bool = True
) -> BottleneckClassifier:
    """Build the model that a checkpoint was saved from; in evaluation mode its logits are the same."""
    tensors = dict(layout.tensors)

    def linear(part: str, name: str, inputs: int = 0) -> nn.Linear:
        weight = tensors[part].get(name)
        if weight is None or weight.ndim != 2:
            found = "missing" if weight is None else tuple(weight.shape)
            raise UserError(f"the checkpoint's {name} must be a matrix and is {found}")
        return nn.Linear(inputs or weight.shape[1], len(weight))

    layers: list[Any] = []
    width = 0  # of the bottleneck
    for index, layer in enumerate(layout.bottleneck):
        if layer is nn.Linear:
            layers.append(linear("bottleneck", f"{index}.weight"))
            width = layers[-1].out_features
        else:
            layers.append(layer(width) if layer is nn.BatchNorm1d else layer())
    bottleneck = nn.Sequential(*layers) if layers else nn.Identity()
    head: nn.Module
    if layout.head == TWO_LAYER_HEAD:
        first = linear("head", "0.weight", width)
        last = linear("head", "3.weight", first.out_features)
        head = nn.Sequential(first, nn.ReLU(), nn.Dropout(), last)
    else:
        weights = "parametrizations.weight.original1" if layout.head == WEIGHT_NORM_HEAD else "weight"
        head = first = last = linear("head", weights, width)
        head = weight_norm(head) if layout.head == WEIGHT_NORM_HEAD else head
    own = {name: tensor for name, tensor in backbone.state_dict().items() if name.startswith("fc.")}
    tensors["backbone"] = {**tensors["backbone"], **own}
    unused = ("fc.",)  # TLLib's keep an unused ImageNet classifier, dalib's and ours do not
    for part, name in ((backbone, "backbone"), (bottleneck, "bottleneck"), (head, "head")):
        load_into(part, tensors[name], f"the checkpoint's {name}", unused)
    return BottleneckClassifier(backbone, last.out_features, bottleneck, head, first.in_features, pool, finetune)


def _canonical(name: str) -> str:
    for theirs, ours in RENAMED:
        name = re.sub(theirs, ours, name)
    if block := re.fullmatch(r"bottleneck\.(0\.0|[1-9]\d*)\.(fc|bn)\.(\w+)", name):  # TLLib's afn.py
        index = 3 * int(block[1].partition(".")[0]) + (block[2] == "bn")
        name = f"bottleneck.{index}.{block[3]}"
    return name


def export_state_dict(classifier: nn.Module) -> dict[str, Tensor]:
    """The weights in the layout of the checkpoint that the classifier came from, on the CPU.

    Weights of a timm or torchvision network load strictly into it, with equal logits. Weights of TLLib's classifier
    have the names ``backbone.``, ``bottleneck.`` and ``head.``.
    """
    state: dict[str, Tensor] = classifier.state_dict()  # of a type that knows the versions of the network's modules
    for name, tensor in state.items():
        state[name] = tensor.detach().cpu().clone()
    return state
