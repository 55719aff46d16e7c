"""A picture of some images as a network gets them, with file name and predicted class."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.readers import spread
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.preflight.case import Case
from tllib_ancon.runs.files import new_file, write_bytes
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.text import showable

PICTURE = "images.png"
TILES = 8
COLUMNS = 4

SIDE = 3.15
"""Width of a tile with its margin, in inches. Letters can be read if the picture is shown 600 pixels wide."""

CAPTION = 0.75
"""Height of a caption of two lines, in inches."""

DPI = 100
LETTERS = 19
"""Size of a caption's letters in points."""

MOST_CHARACTERS = 18
"""Of a line of a caption."""


def require_pictures(folder: Path, inputs: Tensor) -> None:
    """Raise an error where inputs cannot be drawn or the folder cannot be made; make the folder."""
    if inputs.ndim != 4:
        shape = tuple(inputs[0].shape)
        raise BadSetting(
            f"{named('out')} draws images (C, H, W), and these inputs have shape {shape}", "leave it out", setting="out"
        )
    if folder.exists() and not folder.is_dir():
        raise BadSetting(f"{named('out', folder)} is a file", f"give a folder for {PICTURE}", setting="out")
    new_file(folder)
    folder.mkdir(exist_ok=True)


def write_tiles(file: Path, case: Case) -> Path:
    """Draw up to eight images of the sample, each above its file name and predicted class; returns the file."""
    from matplotlib.figure import Figure  # for pictures alone

    sample = case.sample
    in_order = np.argsort(sample.positions)
    positions = in_order[spread(len(sample), TILES)].tolist()
    tensors = [case.opened.transforms.evaluation(sample.image(position)) for position in positions]
    rows = math.ceil(len(positions) / COLUMNS)
    figure = Figure(figsize=(COLUMNS * SIDE, rows * (SIDE + CAPTION)), dpi=DPI, layout="constrained")
    for place, picture in enumerate(_as_pictures(tensors, case.opened.transforms.preprocessing)):
        panel = figure.add_subplot(rows, COLUMNS, place + 1)
        panel.imshow(picture)
        panel.set(xticks=[], yticks=[], frame_on=False)
        lines = (_name(sample, positions[place]), _prediction(case, positions[place]))
        caption = "\n".join(_shortened(showable(line)) for line in lines)
        panel.set_xlabel(caption, loc="left", fontsize=LETTERS, parse_math=False)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
        figure.savefig(content, format="png")
    write_bytes(file, content.getvalue())
    return file


def _name(sample: ImageSource, position: int) -> str:
    """File name of an image of the sample, or its number."""
    if sample.paths is not None:
        return os.path.basename(sample.paths[position])
    return f"image {sample.positions[position]}"


def _prediction(case: Case, position: int) -> str:
    """Name of the predicted class of an image of the sample."""
    return case.class_names[int(case.predicted.logits[position].argmax())]


def _as_pictures(tensors: Sequence[Tensor], preprocessing: Preprocessing | None) -> list[NDArray[np.float32]]:
    """Network inputs (C, H, W) without their normalisation; scaled by their range if it is unknown."""
    if preprocessing is None or len(preprocessing.mean) not in (1, tensors[0].shape[0]):
        least = min(float(tensor.min()) for tensor in tensors)
        most = max(float(tensor.max()) for tensor in tensors)
        return [_picture((tensor - least) / max(most - least, 1e-12)) for tensor in tensors]
    mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std).view(-1, 1, 1)
    return [_picture(tensor * std + mean) for tensor in tensors]


def _picture(values: Tensor) -> NDArray[np.float32]:
    """Values (C, H, W) from 0 to 1 as a picture (H, W, 3): of one channel grey, of several the first three."""
    channels = values[:3]
    if len(values) < 3:
        channels = values[:1].expand(3, -1, -1)
    return np.asarray(channels.clamp(0, 1).movedim(0, -1).cpu(), np.float32)


def _shortened(text: str) -> str:
    """The text without its middle, if it is longer than a line of a caption."""
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[: half - 1]}…{text[-half:]}"
