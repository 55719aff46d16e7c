"""The model of a run in a form for use elsewhere."""

from __future__ import annotations

from pathlib import Path

from tllib_ancon.config import ExportConfig, PredictConfig
from tllib_ancon.data.domain import numbered
from tllib_ancon.errors import UserError
from tllib_ancon.models import export as forms
from tllib_ancon.training import pictures, starts

WRITERS = {
    "onnx": forms.to_onnx,
    "torch-export": forms.to_program,
    "torchscript": forms.to_torchscript,
    "state-dict": forms.to_state_dict,
}


def export(config: ExportConfig) -> None:
    """Write the selected model of a run, with its classes and what its pictures should be like.

    Raises:
        UserError: no run of this package, a file that exists, a network that the form cannot hold
    """
    out = Path(config.out)
    if out.exists() and not config.overwrite:
        raise UserError(f"{out} exists; pass `overwrite=True` to replace it, or another `out`")
    if not out.parent.is_dir():
        raise UserError(f"`out={out}`: the folder {out.parent} does not exist; create it first")
    start = starts.find_start(config.run)
    if start.recorded is None:
        raise UserError(
            f"{config.run} is not a run directory and does not lie in one, so nothing says how pictures are prepared"
        )
    settings = starts.inherited(PredictConfig(checkpoint=start.checkpoint, quiet=True), start)
    classes = start.classes
    model = starts.start_classifier(settings, start, len(classes) if classes else None)
    settings = pictures.with_picture_defaults(settings, model.preprocessing)
    mean, std = pictures.normalisation(settings, model.preprocessing)
    if mean is None or std is None:
        raise UserError(f"{config.run} does not say how its pictures are normalised")
    side = settings.resize_size if settings.val_resizing == "res." else settings.image_size
    assert side is not None
    WRITERS[config.format](model, classes or numbered(model.num_classes), mean, std, side, out)
