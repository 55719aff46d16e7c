"""State dicts: out of a file without running its code, into a network or an error that names what does not fit."""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError, megabytes, one_line

MCD_PARTS = {"G", "F1", "F2"}
"""TLLib's mcd.py saves three state dicts: the backbone and two classifiers, of which the first is used."""

ENTRIES = ("state_dict_ema", "model_ema", "ema_state_dict", "state_dict", "model_state_dict", "model", "network")
"""Where training programs keep the weights in a checkpoint, those of timm, torchvision and Lightning among them. As
timm does, the exponential moving average of the weights is taken where there is one."""

COUNTERS = ("num_batches_tracked", "total_ops", "total_params")
"""Last words of names that hold no weights: batches seen by batch-norm, and what profilers leave behind."""

MOST_TIMES, FEW_BYTES = 4, 2**20
"""A file may not unpack to more than so many times its size, unless it is small. Torch does not compress."""

MOST_LISTED = 6
MOST_CHARACTERS = 500
"""Of a tensor's name, which messages show."""

SAVE = "torch.save(model.state_dict(), FILE)"


def load_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict; no code of the file is run.

    Args:
        path: a file of ``torch.save`` or .safetensors: a state dict, or a dict of a training program with one among
            its :data:`ENTRIES`

    Returns: name -> tensor, on the CPU. TLLib's mcd.py saves three state dicts; their names get the prefixes
        ``G.``, ``F1.`` and ``F2.``

    Raises:
        UserError: no file, an unreadable one, one that unpacks to far more than its size, or one that holds something
            other than tensors (what)
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"checkpoint {path} is not a file" if path.exists() else f"checkpoint {path} does not exist")
    if path.stat().st_size == 0:
        raise UserError(f"checkpoint {path} is empty")
    state = _find_state_dict(_read(path), path)
    for name, tensor in state.items():
        if len(name) > MOST_CHARACTERS:
            raise UserError(f"checkpoint {path}: the name of a tensor has {len(name)} characters, {name[:60]}…")
        problem = _peculiarity(tensor)
        if problem:
            raise UserError(f"checkpoint {path}: its tensor {name} {problem}; save plain tensors, {SAVE}")
    return state


def without_prefix(state: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network, where a program saved them under a prefix (``module.``, ``model.``, ``_orig_mod.``) and
    maybe with others beside them. Of two copies of the network, the one whose prefix says ``ema`` is taken.

    Raises:
        UserError: several copies of the network (their prefixes)
    """
    names = [name for name in network.state_dict() if not name.endswith(COUNTERS)]
    prefixes = (
        {name.removesuffix(names[0]) for name in state if name == names[0] or name.endswith(f".{names[0]}")}
        if names
        else set()
    )
    found = {prefix: sum(prefix + name in state for name in names) for prefix in prefixes}
    complete = sorted(prefix for prefix in found if found[prefix] == len(names))
    if len(complete) > 1:
        averages = [prefix for prefix in complete if "ema" in prefix]
        if len(averages) != 1:
            raise UserError(f"the checkpoint holds several networks, {', '.join(map(repr, complete))}; save one alone")
        complete = averages
    prefix = complete[0] if complete else max(sorted(found), key=lambda name: found[name], default="")
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def load_into(network: nn.Module, state: Mapping[str, Tensor], source: str, ignore: tuple[str, ...] = ()) -> None:
    """Load ``state`` into ``network`` completely.

    Args:
        network (nn.Module): receives the tensors
        state (mapping): name -> tensor
        source (str): where the tensors come from, for the error
        ignore (tuple of str): prefixes of tensors in ``state`` that the network need not have

    Raises:
        UserError: a tensor is missing, left over, of another shape, or of whole numbers where the network has weights
            (which ones)
    """
    expected = network.state_dict()
    problems = [f"{name} is missing" for name in sorted(set(expected) - set(state)) if not name.endswith(COUNTERS)]
    problems += [
        f"{name} is not part of the network"
        for name in state
        if name not in expected and not name.startswith(ignore) and not name.endswith(COUNTERS)
    ]
    shared = [name for name in expected if name in state]
    problems += [
        f"{name} has shape {tuple(state[name].shape)}, the network {tuple(expected[name].shape)}"
        for name in shared
        if state[name].shape != expected[name].shape
    ]
    problems += [
        f"{name} has type {state[name].dtype}, the network {expected[name].dtype}"
        for name in shared
        if expected[name].is_floating_point() and not state[name].is_floating_point()
    ]
    if problems:
        more = f", and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
        raise UserError(f"{source} does not fit the network: {'; '.join(problems[:MOST_LISTED])}{more}")
    try:
        expected.update({name: state[name] for name in shared})  # keeps the versions of the network's modules
        network.load_state_dict(expected)
    except RuntimeError as error:
        raise UserError(f"{source} cannot be loaded into the network ({one_line(error)})") from error


def _read(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        _require_modest_size(path)
        with torch.serialization.safe_globals([argparse.Namespace]):  # timm's and torchvision's arguments; plain data
            return torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except UnpicklingError as error:
        culprit = re.search(r"GLOBAL (\S+)", str(error))
        if culprit is None:
            raise UserError(f"checkpoint {path} cannot be read: it is damaged, or no file of torch.save") from error
        raise UserError(
            f"checkpoint {path} is not a plain state dict: it holds {culprit[1]}, and reading that would run "
            f"code of the file; save the weights alone: {SAVE}"
        ) from error
    except Exception as error:  # damaged bytes can lead the readers to any error
        if "TorchScript" in str(error):
            raise UserError(f"checkpoint {path} is a TorchScript program; save the weights alone: {SAVE}") from error
        raise UserError(f"checkpoint {path} cannot be read: it is damaged or incomplete ({one_line(error)})") from error


def _require_modest_size(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as file:
        unpacked = sum(entry.file_size for entry in file.infolist())
    packed = path.stat().st_size
    if unpacked > max(FEW_BYTES, MOST_TIMES * packed):
        raise UserError(
            f"checkpoint {path} is not read: its {megabytes(packed)} unpack to {megabytes(unpacked)}; "
            "torch.save does not compress"
        )


def _find_state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    if _is_state_dict(content):
        return dict(content)
    if isinstance(content, Mapping):
        if set(content) == MCD_PARTS and all(map(_is_state_dict, content.values())):
            return {f"{part}.{name}": state[name] for part, state in content.items() for name in state}
        for entry in ENTRIES:
            if _is_state_dict(content.get(entry)):
                return dict(content[entry])
    raise UserError(f"checkpoint {path} is not a plain state dict but {_describe(content)}")


def _is_state_dict(content: Any) -> bool:
    return (
        isinstance(content, Mapping)
        and len(content) > 0
        and all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items())
    )


def _peculiarity(tensor: Tensor) -> str | None:
    """Why a tensor cannot be copied into a network, or its numbers are not all in the file."""
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


def _describe(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    if not content:
        return "an empty dict"
    inner = next((name for name, value in content.items() if _is_state_dict(value)), None)
    hint = "" if inner is None else f"; save the entry {inner!r} by itself"
    return f"a dict with the entries {some_names(content)}{hint}"


def some_names(entries: Mapping[Any, Any], most: int = MOST_LISTED) -> str:
    """The first names of a mapping, and how many more there are."""
    names = [str(name)[:100] for name in entries]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
