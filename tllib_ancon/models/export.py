"""A classifier for use elsewhere: ONNX, a ``torch.export`` program, TorchScript, or its weights alone.

Programs take images (B, C, S, S), normalised, of any B, and give logits (B, K). Each file says what its outputs and
inputs mean: the names of the classes in their order, mean and standard deviation of each channel, the side S.
"""

from __future__ import annotations

import copy
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError, one_line
from tllib_ancon.models.any_network import NetworkClassifier, described
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.loading import export_state_dict

METADATA = "metadata.json"
"""Name of the entry with the metadata in a file of ``torch.export`` or TorchScript."""

MOST_ONNX_BYTES = 2**31 - 2**24
"""Of weights: the format's limit for one file, less room for the graph."""


def to_onnx(
    classifier: Classifier,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    image_size: int,
    path: str | Path,
) -> None:
    """Write an ONNX model with the input ``images`` and the output ``logits``.

    The keys ``classes``, ``mean``, ``std`` and ``image_size`` of its metadata hold JSON.

    Args:
        classifier: left as it is; its features are left out
        classes: K names, in the order of the logits
        mean, std: of each channel, of pixels in [0, 1]
        image_size: S, side in pixels
        path: of the file; one that is there is replaced once the new one is whole

    Raises:
        UserError: a package that is missing (which), metadata that do not fit the network, a network that cannot be
            exported, or one that is too large for one file
    """
    _require("onnx", "onnxscript")
    metadata = _checked(classifier, classes, mean, std, image_size, path)
    network, images = _program_of(classifier, mean, image_size)
    size = sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())
    if size > MOST_ONNX_BYTES:
        raise UserError(f"an ONNX file holds at most 2 GB, the weights have {size / 1e9:.1f} GB; use torch.export")
    with _errors_of("ONNX"), torch.no_grad():
        program = torch.onnx.export(
            network,
            (images,),
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: _batch()},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update({name: json.dumps(value) for name, value in metadata.items()})
    with _whole_file(path) as part, _errors_of("ONNX"):
        program.save(part)


def to_program(
    classifier: Classifier,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    image_size: int,
    path: str | Path,
) -> None:
    """Write a program for ``torch.export.load``, with the metadata as its extra file ``metadata.json``; the arguments
    are those of :func:`to_onnx`.

    Raises:
        UserError: metadata that do not fit the network, or a network that cannot be exported
    """
    metadata = _checked(classifier, classes, mean, std, image_size, path)
    network, images = _program_of(classifier, mean, image_size)
    with _errors_of("torch.export"), torch.no_grad():
        program = torch.export.export(network, (images,), dynamic_shapes=({0: _batch()},))
    with _whole_file(path) as part, _errors_of("torch.export"):
        torch.export.save(program, part, extra_files={METADATA: json.dumps(metadata)})


def to_torchscript(
    classifier: Classifier,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    image_size: int,
    path: str | Path,
) -> None:
    """Write a traced program for ``torch.jit.load``, with the metadata as its extra file ``metadata.json``; the
    arguments are those of :func:`to_onnx`.

    Raises:
        UserError: a torch without TorchScript, metadata that do not fit the network, or a network that cannot be traced
    """
    if not hasattr(torch, "jit") or not hasattr(torch.jit, "trace"):
        raise UserError(f"torch {torch.__version__} has no TorchScript any more; use torch.export")
    metadata = _checked(classifier, classes, mean, std, image_size, path)
    network, images = _program_of(classifier, mean, image_size)
    with _errors_of("TorchScript"), torch.no_grad():
        program = torch.jit.trace(network, images)  # type: ignore[no-untyped-call]
    with _whole_file(path) as part, _errors_of("TorchScript"):
        torch.jit.save(program, part, _extra_files={METADATA: json.dumps(metadata)})


def to_state_dict(
    classifier: Classifier,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    image_size: int,
    path: str | Path,
) -> None:
    """Write the weights as :func:`~tllib_ancon.models.loading.export_state_dict` gives them: to ``.safetensors``, where
    the metadata have a place, or as ``torch.save`` does; the arguments are those of :func:`to_onnx`.

    Raises:
        UserError: metadata that do not fit the network
    """
    metadata = _checked(classifier, classes, mean, std, image_size, path)
    state = export_state_dict(classifier)
    with _whole_file(path) as part:
        if Path(path).suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file(state, part, {name: json.dumps(value) for name, value in metadata.items()})
        else:
            torch.save(state, part)


FORMATS: dict[str, Callable[..., None]] = {
    "onnx": to_onnx,
    "torch-export": to_program,
    "torchscript": to_torchscript,
    "state-dict": to_state_dict,
}


class _Logits(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits


def _program_of(classifier: Classifier, mean: Sequence[float], image_size: int) -> tuple[nn.Module, Tensor]:
    """A copy for evaluation on the CPU, without hooks, and two images that it takes."""
    twin = copy.deepcopy(classifier).float().cpu()
    network = twin.release() if isinstance(twin, NetworkClassifier) else twin
    program, images = _Logits(network.requires_grad_(False)).eval(), torch.zeros(2, len(mean), image_size, image_size)
    try:
        with torch.no_grad():
            logits = program(images)
    except Exception as error:  # any error can come out of a person's own network
        raise UserError(f"the network cannot be called on images {tuple(images.shape)} ({one_line(error)})") from error
    if not isinstance(logits, Tensor) or logits.shape != (2, classifier.num_classes):
        raise UserError(f"the network gives {described(logits)}, expected (2, {classifier.num_classes})")
    return program, images


def _checked(
    classifier: Classifier,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    image_size: int,
    path: str | Path,
) -> dict[str, Any]:
    """The metadata of a file.

    Raises:
        UserError: they do not fit the network, or there is no folder for the file
    """
    if not Path(path).parent.is_dir():
        raise UserError(f"{path} cannot be written: the folder {Path(path).parent} does not exist; create it first")
    if len(classes) != classifier.num_classes:
        raise UserError(f"`classes` names {len(classes)} classes, the network has {classifier.num_classes}")
    if len(mean) != len(std) or not len(mean):
        raise UserError(f"`mean` has {len(mean)} channels and `std` {len(std)}; expected one number each for a channel")
    if image_size < 1:
        raise UserError(f"`image_size` must be at least 1, got {image_size}")
    numbers = {"mean": [float(value) for value in mean], "std": [float(value) for value in std]}
    return {"classes": [str(name) for name in classes], **numbers, "image_size": int(image_size)}


def _batch() -> Any:
    return torch.export.Dim("batch", min=1)


def _require(*packages: str) -> None:
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            raise UserError(f"export to ONNX needs {package}: pip install 'tllib-ancon[onnx]'") from error


@contextmanager
def _errors_of(exporter: str) -> Iterator[None]:
    """The exporters' warnings are for those who write networks, and their errors can be of any kind."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OSError:
        raise
    except Exception as error:
        raise UserError(f"the network cannot be exported by {exporter} ({one_line(error)})") from error


@contextmanager
def _whole_file(path: str | Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place when it is written."""
    path = Path(path)
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({one_line(error)})") from error
    finally:
        part.unlink(missing_ok=True)
