"""The model of a run in a form for use elsewhere."""

from __future__ import annotations

from torch import nn

from tllib_ancon.config import ExportConfig, PredictConfig
from tllib_ancon.data.domain import numbered
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.errors import UserError
from tllib_ancon.models.export import export as exported
from tllib_ancon.training import inputs
from tllib_ancon.training.files import new_file, write_bytes
from tllib_ancon.training.predictor import Predictor


def export(config: ExportConfig, model: nn.Module | None = None) -> None:
    """Write the selected model of a run with its classes and its preprocessing. ``model`` is the network, if only your
    program can build it."""
    out = new_file(config.out, config.overwrite)
    predictor = Predictor(PredictConfig(checkpoint=config.run, model=config.model, quiet=True), model)
    start, classifier, classes = predictor.start, predictor.network, predictor.classes
    assert start is not None
    if start.recorded is None:
        raise UserError(
            f"{config.run} is not a run directory and does not lie in one: the preprocessing of its images is unknown. "
            "Adapt it with `log=DIR`, then export DIR"
        )
    images = inputs.with_preprocessing(predictor.config, predictor.preprocessing)[1]
    if images is None and start.network and "images" in start.network:  # what the run's own tensors or transforms gave
        channels, _, side = start.network["images"]
        images = Preprocessing((0.0,) * channels, (1.0,) * channels, side)
    if images is None:
        raise UserError(
            f"{config.run} does not record how its images are normalised; adapt again with `norm_mean` and `norm_std`"
        )
    side = images.resize_size if images.val_resizing == "res." else images.image_size
    assert side is not None
    form = "safetensors" if (config.format, out.suffix) == ("state-dict", ".safetensors") else config.format
    write_bytes(
        out, exported(classifier, form, classes or numbered(classifier.num_classes), images.mean, images.std, side)
    )
