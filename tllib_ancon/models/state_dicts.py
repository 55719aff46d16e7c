"""State dicts: out of a file without running its code, into a network or an error that names what does not fit."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tllib_ancon.errors import UserError, reading

MCD_PARTS = {"G", "F1", "F2"}
"""TLLib's mcd.py saves three state dicts: the backbone and two classifiers. The first classifier is used."""

ENTRIES = ("state_dict_ema", "model_ema", "ema_state_dict", "state_dict", "model_state_dict", "model", "network")
"""Where training programs keep the weights in a checkpoint, those of timm, torchvision and Lightning among them. As
timm does, the exponential moving average of the weights is taken where there is one."""

COUNTERS = ("num_batches_tracked", "total_ops", "total_params")
"""Last words of names that hold no weights: batches seen by batch-norm, and what profilers leave behind."""

MOST_LISTED, MOST_CHARACTERS = 6, 100
SAVE = "torch.save(model.state_dict(), FILE)"


def load_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the state dict, on the CPU, in a file of ``torch.save`` or .safetensors; no code of the file is run. It is
    the file's content, or one of the :data:`ENTRIES` of a training program's dict. The three of TLLib's mcd.py are
    joined with the prefixes ``G.``, ``F1.`` and ``F2.``."""
    path = Path(path)
    if not path.is_file():
        raise UserError(
            f"checkpoint {path} is not a file; give one"
            if path.exists()
            else f"checkpoint {path} does not exist; give a file or a run directory"
        )
    with reading(path, "a checkpoint", f"; save the weights alone: {SAVE}"):
        content = _read(path)
    entries = content if isinstance(content, Mapping) else {}
    if set(entries) == MCD_PARTS and all(map(_is_state_dict, entries.values())):
        content = {f"{part}.{name}": state[name] for part, state in entries.items() for name in state}
    state = dict(next(filter(_is_state_dict, (content, *map(entries.get, ENTRIES))), {}))
    if not state:
        what = f"a dict with the entries {some_names(entries)}" if entries else f"a {type(content).__name__}"
        raise UserError(f"checkpoint {path} is not a plain state dict but {what}; save the weights alone: {SAVE}")
    for name, tensor in state.items():
        odd = tensor.is_meta or tensor.is_quantized or tensor.layout != torch.strided or tensor.is_complex()
        if odd or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise UserError(
                f"checkpoint {path}: its tensor {name[:MOST_CHARACTERS]} {tuple(tensor.shape)} is sparse, quantised, "
                f"complex or without all its numbers; save plain tensors, {SAVE}"
            )
    return state


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        return load_file(path)
    with torch.serialization.safe_globals([argparse.Namespace]):  # timm's and torchvision's arguments; plain data
        return torch.load(path, map_location="cpu", weights_only=True)


def _is_state_dict(content: Any) -> bool:
    if not isinstance(content, Mapping) or not content:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items())


def without_prefix(state: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network, where a program saved them under a prefix (``module.``, ``model.``, ``_orig_mod.``) and
    maybe with others beside them. Of two copies of the network, the one whose prefix says ``ema`` is taken."""
    names = [name for name in network.state_dict() if not name.endswith(COUNTERS)]
    first = names[0] if names else ""
    prefixes = {name.removesuffix(first) for name in state if name == first or name.endswith(f".{first}")}
    found = {prefix: sum(prefix + name in state for name in names) for prefix in sorted(prefixes)}
    best = [prefix for prefix in found if found[prefix] == max(found.values())]
    averages = [prefix for prefix in best if "ema" in prefix]
    if len(best) > 1 and len(averages) != 1:
        raise UserError(f"the checkpoint holds several networks, {', '.join(map(repr, best))}; save one alone")
    prefix = next(iter(averages or best), "")
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def load_into(network: nn.Module, state: Mapping[str, Tensor], source: str, ignore: tuple[str, ...] = ()) -> None:
    """Load ``state`` into ``network`` completely; ``ignore`` are prefixes of tensors that the network need not have.
    The error begins with the ``source`` of the tensors and says which are missing, left over, or of another shape or
    kind."""
    expected = network.state_dict()
    problems = [f"{name} is missing" for name in sorted(set(expected) - set(state)) if not name.endswith(COUNTERS)]
    for name, tensor in state.items():
        if name not in expected:
            if not name.startswith(ignore) and not name.endswith(COUNTERS):
                problems.append(f"{name[:MOST_CHARACTERS]} is not part of the network")
        elif tensor.shape != expected[name].shape:
            problems.append(f"{name} has shape {tuple(tensor.shape)}, the network {tuple(expected[name].shape)}")
        elif expected[name].is_floating_point() and not tensor.is_floating_point():
            problems.append(f"{name} has type {tensor.dtype}, the network {expected[name].dtype}")
        else:
            expected[name] = tensor  # keeps the versions of the network's modules
    if problems:
        raise UserError(f"{source} does not fit the network: {_first(problems, '; ', ', and')}")
    network.load_state_dict(expected)


def some_names(entries: Mapping[Any, Any]) -> str:
    """The first names of a mapping, and how many more there are."""
    return _first([str(name)[:MOST_CHARACTERS] for name in entries], ", ", " and")


def _first(texts: list[str], between: str, last: str) -> str:
    more = f"{last} {len(texts) - MOST_LISTED} more" if len(texts) > MOST_LISTED else ""
    return between.join(texts[:MOST_LISTED]) + more
