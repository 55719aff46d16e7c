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
from tllib_ancon.runtime.errors import BadFile, reading
from tllib_ancon.runtime.processes import collect
from tllib_ancon.runtime.types import State
from tllib_ancon.training.files import sha256_of, write_whole
from tllib_ancon.training.inference import Outputs

SEAL = b"sha256:"
START_AGAIN = "pass `overwrite=True` to start the run again"
OTHER_VERSION = f"did another version of this program write it? Finish the run with that one, or {START_AGAIN}"
DIFFERING_PARTS = ("method",)
"""Parts that differ from process to process."""
PREDICTIONS = "predictions.npz"
Array = npt.NDArray[Any]


class Stateful(Protocol):
    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> Any: ...


def take_snapshot(parts: Mapping[str, Stateful]) -> State:
    """The state of ``parts`` and of all random generators; the main process also gets the parts of the others."""
    algorithm, keys, *numpy_state = cast(tuple[Any, ...], np.random.get_state())
    cuda_states = []
    if torch.cuda.is_available():
        cuda_states.append(torch.cuda.get_rng_state())
    snapshot: State = {
        "python": random.getstate(),
        "numpy": [algorithm, keys.tolist(), *numpy_state],
        "torch": torch.get_rng_state(),
        "cuda": cuda_states,
        "parts": {name: part.state_dict() for name, part in parts.items()},
    }
    if processes.world_size() == 1:
        return snapshot
    differing = {name: snapshot["parts"][name] for name in DIFFERING_PARTS if name in parts}
    snapshots = collect(copy_to_cpu({**snapshot, "parts": differing}))
    return {**snapshot, "others": snapshots[1:]}


def restore_snapshot(parts: Mapping[str, Stateful], snapshot: State) -> None:
    """Put ``parts`` and the generators into the state of this process in the main process's snapshot."""
    title = "the kept state of this run"
    with reading(title, "its processes", OTHER_VERSION):
        snapshots = [snapshot, *snapshot.get("others", [])]
        process_snapshot = snapshots[processes.rank()]
    for name, part in parts.items():
        with reading(title, f"its {name}", OTHER_VERSION):
            state = snapshot["parts"][name]
            if name in DIFFERING_PARTS:
                state = {**state, **process_snapshot["parts"][name]}
            part.load_state_dict(state)
    with reading(title, "its random generators", OTHER_VERSION):
        random.setstate(process_snapshot["python"])
        np.random.set_state(tuple(process_snapshot["numpy"]))
        torch.set_rng_state(process_snapshot["torch"])
        if torch.cuda.is_available() and process_snapshot["cuda"]:
            torch.cuda.set_rng_state(process_snapshot["cuda"][0])


def copy_to_cpu(value: Any, _copies: dict[tuple[Any, ...], Tensor] | None = None) -> Any:
    """A copy that no later step changes, on the CPU. Tensors that share memory, as tied weights do, stay one."""
    copies = {} if _copies is None else _copies
    if isinstance(value, Tensor):
        memory = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if memory not in copies:
            copies[memory] = value.detach().to("cpu", copy=True)
        return copies[memory]
    if isinstance(value, list | tuple):
        return type(value)(copy_to_cpu(entry, copies) for entry in value)
    if isinstance(value, dict):
        mapping = copy.copy(value)  # with the versions of modules that a state dict carries
        for name, entry in value.items():
            mapping[name] = copy_to_cpu(entry, copies)
        return mapping
    return value


def write_sealed(path: Path, state: State) -> None:
    """Write a file of ``torch.save`` with the SHA-256 of its bytes at its end, which ``torch.load`` ignores."""

    def write(file: BinaryIO) -> None:
        torch.save(state, file)
        file.seek(0)
        file.write(SEAL + sha256_of(file).encode())

    write_whole(path, write)


def read_sealed(path: Path) -> State:
    content, seal, digest = path.read_bytes().rpartition(SEAL)
    if not seal or digest != hashlib.sha256(content).hexdigest().encode():
        raise BadFile(f"{path} is damaged: its checksum is wrong", f"restore it from a copy, or {START_AGAIN}")
    state: State = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def write_weights(path: Path, weights: State) -> None:
    write_whole(path, lambda file: torch.save(dict(weights), file))


def write_arrays(path: Path, arrays: Mapping[str, Array | None]) -> None:
    defined: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    write_whole(path, lambda file: np.savez_compressed(file, **defined))


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    with reading(path, "arrays"), np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in names if name in arrays.files}


@dataclass(frozen=True)
class _SavedPredictions:
    """Outputs of the adapted model on the N images of the target."""

    indices: Array  # (N,) position of each image in the list of the domain, of which images may have been left out
    logits: Array  # (N, K)
    labels: Array | None = None  # (N,) true classes
    features: Array | None = None  # (N, D) what the head gets, float16, or float32 if a value is too large for that
    votes: Array | None = None  # (N, K) confident votes; a row without any vote for an image that was held out
    paths: Array | None = None  # (N,) where the images are files


def write_predictions(path: Path, predictions: Outputs, target: Domain, votes: Tensor | None) -> None:
    features = predictions.features.cpu().numpy()
    if np.abs(features).max(initial=0) <= np.finfo(np.float16).max:
        features = features.astype(np.float16)
    paths = None
    if target.paths is not None:
        paths = np.asarray(target.paths)
    saved = _SavedPredictions(
        indices=target.positions,
        logits=predictions.logits.cpu().numpy(),
        labels=target.labels,
        features=features,
        votes=_smallest_votes(votes),
        paths=paths,
    )
    write_arrays(path, vars(saved))


def _smallest_votes(votes: Tensor | None) -> Array | None:
    """Votes as whole numbers where they are, else as float32."""
    if votes is None:
        return None
    array = votes.numpy()
    if (array == array.round()).all():
        return array.astype(np.uint16)
    return array.astype(np.float32)


def read_predictions(run: Path) -> _SavedPredictions | None:
    path = run / PREDICTIONS
    if not path.is_file():
        return None
    with reading(path, "predictions"):
        return _SavedPredictions(**read_arrays(path, _SavedPredictions.__dataclass_fields__))
