"""What a run stores, as pairs of functions that write and read: its state, weights and arrays. Reading runs no code."""

import copy
import hashlib
import io
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tllib_ancon.data.domain import Domain
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import UserError, reading
from tllib_ancon.training.devices import collect
from tllib_ancon.training.files import sha256_of, write_whole
from tllib_ancon.training.inference import Outputs

SEAL = b"sha256:"
ANEW = "pass `overwrite=True` to start the run again"
OTHER_VERSION = f"; did another version of this program write it? Finish the run with that one, or {ANEW}"
OWN_PARTS = ("method",)
"""Parts that differ from process to process."""
PREDICTIONS = "predictions.npz"
Array = npt.NDArray[Any]


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


def take_snapshot(parts: Mapping[str, Stateful]) -> dict[str, Any]:
    """The state of ``parts`` and of all random generators; the main process also gets the parts of the others."""
    name, keys, *numpy_state = cast(tuple[Any, ...], np.random.get_state())
    own: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *numpy_state],
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
        "parts": {name: part.state_dict() for name, part in parts.items()},
    }
    if processes.world_size() == 1:
        return own
    differing = {name: part for name, part in own["parts"].items() if name in OWN_PARTS}
    return own | {"others": collect(copy_to_cpu(own | {"parts": differing}))[1:]}


def restore_snapshot(parts: Mapping[str, Stateful], snapshot: Mapping[str, Any]) -> None:
    """Put ``parts`` and the generators into the state of this process in the main process's snapshot."""
    kept = "the kept state of this run"
    with reading(kept, "its processes", OTHER_VERSION):
        own = [snapshot, *snapshot.get("others", [])][processes.rank()]
    for name, part in parts.items():
        with reading(kept, f"its {name}", OTHER_VERSION):
            state = snapshot["parts"][name]
            part.load_state_dict(state | own["parts"][name] if name in OWN_PARTS else state)
    with reading(kept, "its random generators", OTHER_VERSION):
        random.setstate(own["python"])
        np.random.set_state(tuple(own["numpy"]))
        torch.set_rng_state(own["torch"])
        if torch.cuda.is_available() and own["cuda"]:
            torch.cuda.set_rng_state(own["cuda"][0])


def copy_to_cpu(value: Any, _copied: dict[tuple[Any, ...], Tensor] | None = None) -> Any:
    """A copy that no later step changes, on the CPU. Tensors that share memory, as tied weights do, stay one."""
    copied = {} if _copied is None else _copied
    if isinstance(value, Tensor):
        place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if place not in copied:
            copied[place] = value.detach().to("cpu", copy=True)
        return copied[place]
    if isinstance(value, list | tuple):
        return type(value)(copy_to_cpu(entry, copied) for entry in value)
    if isinstance(value, dict):
        same = copy.copy(value)  # with the versions of modules that a state dict carries
        same.update((name, copy_to_cpu(entry, copied)) for name, entry in value.items())
        return same
    return value


def write_sealed(path: Path, state: Mapping[str, Any]) -> None:
    """Write a file of ``torch.save`` with the SHA-256 of its bytes at its end, which ``torch.load`` ignores."""

    def write(file: BinaryIO) -> None:
        torch.save(state, file)
        file.seek(0)
        file.write(SEAL + sha256_of(file).encode())

    write_whole(path, write)


def read_sealed(path: Path) -> dict[str, Any]:
    content, seal, digest = path.read_bytes().rpartition(SEAL)
    if not seal or digest != hashlib.sha256(content).hexdigest().encode():
        raise UserError(f"{path} is damaged: its checksum is wrong; restore it from a copy, or {ANEW}")
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def write_weights(path: Path, weights: Mapping[str, Any]) -> None:
    write_whole(path, lambda file: torch.save(dict(weights), file))


def read_weights(path: Path) -> dict[str, Any]:
    weights: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def write_arrays(path: Path, arrays: Mapping[str, Array | None]) -> None:
    given: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    write_whole(path, lambda file: np.savez_compressed(file, **given))


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    with reading(path, "arrays"), np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in names if name in arrays.files}


@dataclass(frozen=True)
class SavedPredictions:
    """Outputs of the adapted model on the N images of the target."""

    indices: Array  # (N,) position of each image in the list of the domain, of which images may have been left out
    logits: Array  # (N, K)
    labels: Array | None = None  # (N,) true classes
    features: Array | None = None  # (N, D) what the head gets, float16, or float32 if a value is too large for that
    votes: Array | None = None  # (N, K) confident votes; a row without any vote for an image that was held out
    paths: Array | None = None  # (N,) where the images are files


def write_predictions(path: Path, predictions: Outputs, target: Domain, votes: Tensor | None) -> None:
    features, counted = predictions.features.cpu().numpy(), None if votes is None else votes.numpy()
    if np.abs(features).max(initial=0) <= np.finfo(np.float16).max:
        features = features.astype(np.float16)
    if counted is not None:
        counted = counted.astype(np.uint16 if (counted == counted.round()).all() else np.float32)
    paths = None if target.paths is None else np.asarray(target.paths)
    logits = predictions.logits.cpu().numpy()
    write_arrays(path, vars(SavedPredictions(target.positions, logits, target.labels, features, counted, paths)))


def read_predictions(run: Path) -> SavedPredictions | None:
    if not (path := run / PREDICTIONS).is_file():
        return None
    with reading(path, "predictions"):
        return SavedPredictions(**read_arrays(path, SavedPredictions.__dataclass_fields__))
