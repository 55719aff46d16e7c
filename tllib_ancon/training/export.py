"""The model of a run for use elsewhere: ONNX, a ``torch.export`` program, or its weights alone."""

import io
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from tllib_ancon.config.export import ExportConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.domain import numbered
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.calling import called, output_for
from tllib_ancon.models.checkpoints import export_state_dict
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.copies import copy_of
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named, one_line
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.files import new_file, write_bytes
from tllib_ancon.training.predict import Predictor

METADATA = "metadata.json"

FORMAT_OF_ENDING = {
    ".onnx": "onnx",
    ".pt2": "torch-export",
    ".pth": "state-dict",
    ".safetensors": "state-dict",
}
"""Endings of files that one format alone has."""


def export(config: ExportConfig, model: nn.Module | None = None) -> None:
    """Write the selected model of a run; ``model`` is its network if only your program can build it."""
    expected = FORMAT_OF_ENDING.get(Path(config.out).suffix.lower(), config.format)
    if expected != config.format:
        raise BadSetting(
            f"{named('out', config.out)} has the ending of another format than {config.format}",
            f"pass {named('format', expected)}",
            setting="out",
        )
    if config.format == "onnx":
        require(named("format", "onnx"), "onnx", "onnxscript", extra="onnx")
    out = new_file(config.out, config.overwrite)
    predictor = Predictor(PredictConfig(checkpoint=config.run, model=config.model, quiet=True), model)
    classifier = predictor.network
    if predictor.source.run is None:
        raise UserError(
            f"{config.run} is not a run directory and does not lie in one: the preprocessing of its images is unknown. "
            f"Adapt it with {named('log', 'DIR')}, then export DIR"
        )
    preprocessing = _preprocessing_of(predictor, config.run)
    form: str = config.format
    if form == "state-dict" and out.suffix == ".safetensors":
        form = "safetensors"
    side = preprocessing.image_size
    if preprocessing.val_resizing == "res.":
        side = preprocessing.resize_size
    classes = predictor.source.classes or numbered(classifier.num_classes)
    write_bytes(out, _content_of(classifier, form, classes, preprocessing.mean, preprocessing.std, side))


def _preprocessing_of(predictor: Predictor, run: str) -> Preprocessing:
    record = predictor.source.network_record
    if predictor.preprocessing is not None:
        return predictor.preprocessing
    if "images" in record:  # what the run's own tensors or transforms gave
        channels, side = _image_form(record["images"])
        return Preprocessing((0.0,) * channels, (1.0,) * channels, side)
    raise UserError(
        f"{run} does not record how its images are normalised",
        f"adapt again with {named('norm_mean')} and {named('norm_std')}",
    )


def _image_form(form: Any) -> tuple[int, int]:
    """Channels and side of the images of a recorded :func:`~tllib_ancon.data.batches.form_of`."""
    if isinstance(form, list) and len(form) == 4:
        return form[1], form[3]
    raise BadModel(f"the network takes inputs {form}, and export writes networks of images (C, H, W) alone")


def _content_of(
    classifier: Classifier,
    form: str,
    classes: Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
    image_size: int,
) -> bytes:
    """The content of a file: ``onnx``, ``torch-export``, ``state-dict`` or ``safetensors``.

    A program takes normalised images (B, C, S, S) and gives logits (B, K). All but ``state-dict`` hold ``classes``,
    ``mean``, ``std`` and ``image_size`` as JSON."""
    metadata = {"classes": classes, "mean": mean, "std": std, "image_size": image_size}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are for those who write networks
            return _CONTENT_OF_FORM[form](classifier, metadata)
    except UserError:
        raise
    except Exception as error:  # an exporter's can be of any kind
        raise BadModel(
            f"the network cannot be exported by {form} ({one_line(error)})", f"choose another {named('format')}"
        ) from error


def _state_dict(classifier: Classifier, metadata: Record) -> bytes:
    file = io.BytesIO()
    torch.save(export_state_dict(classifier), file)
    return file.getvalue()


def _safetensors(classifier: Classifier, metadata: Record) -> bytes:
    return save(export_state_dict(classifier), _texts(metadata))


def _torch_export(classifier: Classifier, metadata: Record) -> bytes:
    images = _example(metadata)
    network = _Logits(classifier, images)
    program = torch.export.export(network, (images,), dynamic_shapes=_any_batch_size())
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={METADATA: json.dumps(metadata)})
    return file.getvalue()


def _onnx(classifier: Classifier, metadata: Record) -> bytes:
    images = _example(metadata)
    exported = torch.onnx.export(
        _Logits(classifier, images),
        (images,),
        input_names=["images"],
        output_names=["logits"],
        verbose=False,
        dynamic_shapes=_any_batch_size(),
        dynamo=True,
    )
    assert exported is not None
    exported.model.metadata_props.update(_texts(metadata))
    content: bytes = exported.model_proto.SerializeToString()
    return content


_CONTENT_OF_FORM: dict[str, Callable[[Classifier, Record], bytes]] = {
    "state-dict": _state_dict,
    "safetensors": _safetensors,
    "torch-export": _torch_export,
    "onnx": _onnx,
}


def _example(metadata: Record) -> Tensor:
    return torch.zeros(2, len(metadata["mean"]), metadata["image_size"], metadata["image_size"])


def _any_batch_size() -> Any:
    return ({0: torch.export.Dim("batch", min=1)},)


def _texts(metadata: Record) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in metadata.items()}


class _Logits(nn.Module):
    """A copy of a classifier for evaluation on the CPU, without hooks, that takes such images."""

    def __init__(self, classifier: Classifier, images: Tensor):
        super().__init__()
        twin = copy_of(classifier).float().cpu()
        self.network: nn.Module = twin.release()
        self.reader = twin.reader
        self.requires_grad_(False).eval()
        called(self, images)

    def forward(self, images: Tensor) -> Any:
        return self.reader(output_for(self.network, images))
