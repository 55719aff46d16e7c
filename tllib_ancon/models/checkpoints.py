"""Read checkpoints of any program and load them into a network. No code of a file runs."""

import argparse
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tllib_ancon.runtime.errors import BadModel, named, one_line, reading
from tllib_ancon.runtime.text import first_few

Weights = Mapping[str, Tensor]
"""The tensors of a state dict by name."""

MCD_PARTS = {"G", "F1", "F2"}
"""TLLib's mcd.py saves three state dicts: the backbone and two classifiers. The first classifier is used."""

COUNTERS = ("num_batches_tracked", "total_ops", "total_params")
"""Last words of names that hold no weights: batches seen by batch-norm, and what profilers leave behind."""

SAVE = "torch.save(model.state_dict(), FILE)"
SAVE_ENTRY = "torch.save(torch.load(FILE, weights_only=False)[ENTRY], NEW_FILE)"


def load_state_dict(path: str | Path) -> Weights:
    """Read the state dict in a file of ``torch.save`` or .safetensors; no code of the file is run. It is the content or
    the one entry of it that is a state dict."""
    file = Path(path)
    content = _content_of(file)
    states = _states_in(content)
    if len(states) != 1:
        raise BadModel(
            f"checkpoint {file} is not one state dict but {_description(content)}",
            f"save the weights alone: {SAVE}, or of a file that you trust {SAVE_ENTRY}",
        )
    return states[0]


def _content_of(file: Path) -> Any:
    with (
        reading(file, "a checkpoint", f"copy a damaged file again, of another one save the weights alone: {SAVE}"),
        torch.serialization.safe_globals([argparse.Namespace]),  # of timm and torchvision
    ):
        if file.suffix == ".safetensors":
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=True)


def _states_in(content: Any) -> list[Weights]:
    """The state dicts that a checkpoint holds: itself, or its entries."""
    if _is_state_dict(content):
        return [content]
    if not isinstance(content, Mapping):
        return []
    states = {name: entry for name, entry in content.items() if _is_state_dict(entry)}
    if set(content) == set(states) == MCD_PARTS:
        return [_joined(states)]
    return [*states.values()]


def _is_state_dict(content: Any) -> bool:
    if not isinstance(content, Mapping) or not content:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items())


def _joined(states: Mapping[str, Weights]) -> Weights:
    """One state dict of several, with the name of each before its tensors'."""
    joined = {}
    for part, state in states.items():
        for name, tensor in state.items():
            joined[f"{part}.{name}"] = tensor
    return joined


def _description(content: Any) -> str:
    if isinstance(content, Mapping) and content:
        names = one_line(", ".join(map(str, content)))
        return f"a dict with the entries {names}"
    return f"a {type(content).__name__}"


def without_prefix(state: Weights, network: nn.Module) -> Weights:
    """The tensors of a network without what a program puts before all their names. Others, as of a loss, stay if some
    of the network are missing."""
    names = [name for name in network.state_dict() if not name.endswith(COUNTERS)]
    first_name = next(iter(names), "")
    prefixes = [name.removesuffix(first_name) for name in state if f".{name}".endswith(f".{first_name}")]
    matches = [sum(prefix + name in state for name in names) for prefix in prefixes]
    most = max(matches, default=0)
    if matches.count(most) != 1:  # of another network, or of several
        return state
    prefix = prefixes[matches.index(most)]
    has_all = most == len(names)
    others = [name for name in state if has_all and not name.startswith(prefix)]
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name not in others}


def load_into(network: nn.Module, state: Weights, source: str, ignore: tuple[str, ...] = (), advice: str = "") -> None:
    """Load each tensor of the network from ``state``, or name tensors that are missing, of another kind, or left over.
    Counters may be missing or left over, as well as names that begin with one of ``ignore``."""
    weights = network.state_dict()  # of a type that knows the versions of the network's modules
    present = {name: state[name] for name in weights if name in state}
    different = [name for name, tensor in present.items() if not _fits(tensor, weights[name])]
    missing = [name for name in weights if name not in state and not name.endswith(COUNTERS)]
    extra = [name for name in state if name not in weights]
    left_over = [name for name in extra if not name.endswith(COUNTERS) and not name.startswith(ignore)]
    problems = []
    if different:
        differences = [f"{name} is {_form(state[name])}, not {_form(weights[name])}" for name in different]
        problems.append(_few(differences))
    if missing:
        problems.append(f"{_few(missing)} of the network are missing")
    if left_over:
        problems.append(f"the file also holds {_few(left_over)}")
    if not problems:
        weights.update(present)
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:  # of tensors that are not plain
            problems.append(one_line(error))
    if problems:
        raise BadModel(
            f"{source} does not fit the network: {'; '.join(problems)}",
            advice or f"give the {named('arch')} that it was trained with",
        )


def _few(texts: list[str]) -> str:
    return one_line(first_few(texts, 4))


def _fits(tensor: Tensor, expected: Tensor) -> bool:
    if expected.is_floating_point() and not tensor.is_floating_point():
        return False
    return tensor.shape == expected.shape


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def sha256_of_tensors(state: Weights) -> str:
    """A checksum of names, shapes, types and values."""
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
