"""The model of a run for use elsewhere: ONNX, a ``torch.export`` program, or its weights alone."""

import io
import json
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from tllib_ancon.config.export import ExportConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.domain import numbered
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import export_state_dict
from tllib_ancon.models.classifier import Classifier, NetworkClassifier
from tllib_ancon.models.copies import copy_of
from tllib_ancon.models.outputs import LogitsReader, called, output_for
from tllib_ancon.runtime.errors import UserError, one_line
from tllib_ancon.training.files import new_file, write_bytes
from tllib_ancon.training.predictor import Predictor

METADATA = "metadata.json"


def export(config: ExportConfig, model: nn.Module | None = None) -> None:
    """Write the selected model of a run; ``model`` is its network if only your program can build it."""
    out = new_file(config.out, config.overwrite)
    predictor = Predictor(PredictConfig(checkpoint=config.run, model=config.model, quiet=True), model)
    start, classifier = predictor.start, predictor.network
    if start.run is None:
        raise UserError(
            f"{config.run} is not a run directory and does not lie in one: the preprocessing of its images is unknown. "
            "Adapt it with `log=DIR`, then export DIR"
        )
    images = predictor.preprocessing
    if images is None and "images" in start.record:  # what the run's own tensors or transforms gave
        channels, side = _image_form(start.record["images"])
        images = Preprocessing((0.0,) * channels, (1.0,) * channels, side)
    if images is None:
        raise UserError(
            f"{config.run} does not record how its images are normalised; adapt again with `norm_mean` and `norm_std`"
        )
    form = "safetensors" if (config.format, out.suffix) == ("state-dict", ".safetensors") else config.format
    classes = start.classes or numbered(classifier.num_classes)
    side = images.resize_size if images.val_resizing == "res." else images.image_size
    write_bytes(out, content_of(classifier, form, classes, images.mean, images.std, side))


def _image_form(form: Any) -> tuple[int, int]:
    """Channels and side of the images of a recorded :func:`~tllib_ancon.data.batches.form_of`."""
    if isinstance(form, list) and len(form) == 4:
        return form[1], form[3]
    raise UserError(f"the network takes inputs {form}, and export writes networks of images (C, H, W) alone")


def content_of(
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
    images = torch.zeros(2, len(mean), image_size, image_size)
    texts, file = {name: json.dumps(value) for name, value in metadata.items()}, io.BytesIO()
    any_batch: Any = ({0: torch.export.Dim("batch", min=1)},)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are for those who write networks
            if form == "safetensors":
                return save(export_state_dict(classifier), texts)
            if form == "state-dict":
                torch.save(export_state_dict(classifier), file)
            elif form == "torch-export":
                program = torch.export.export(_Logits(classifier, images), (images,), dynamic_shapes=any_batch)
                torch.export.save(program, file, extra_files={METADATA: json.dumps(metadata)})
            else:
                import onnx  # noqa: F401
                import onnxscript  # noqa: F401

                exported = torch.onnx.export(
                    _Logits(classifier, images),
                    (images,),
                    input_names=["images"],
                    output_names=["logits"],
                    verbose=False,
                    dynamic_shapes=any_batch,
                    dynamo=True,
                )
                assert exported is not None
                exported.model.metadata_props.update(texts)
                file.write(exported.model_proto.SerializeToString())
            return file.getvalue()
    except UserError:
        raise
    except ImportError as error:
        raise UserError(f"export to {form} needs {error.name}: pip install onnx onnxscript onnxruntime") from error
    except Exception as error:  # an exporter's can be of any kind
        raise UserError(
            f"the network cannot be exported by {form} ({one_line(error)}); choose another `format`"
        ) from error


class _Logits(nn.Module):
    """A copy of a classifier for evaluation on the CPU, without hooks, that takes such images."""

    def __init__(self, classifier: Classifier, images: Tensor):
        super().__init__()
        twin = copy_of(classifier).float().cpu()
        self.network: nn.Module = twin
        self.reader = LogitsReader()
        if isinstance(twin, NetworkClassifier):
            self.network = twin.release()
            self.reader = twin.reader
        self.requires_grad_(False).eval()
        called(self, images)

    def forward(self, images: Tensor) -> Any:
        return self.reader(output_for(self.network, images))
