"""A picture of some images as a network gets them, each above its file name and predicted class."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.readers import spread
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.runs.files import new_file, write_bytes
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.text import showable

PICTURE = "images.png"
TILES = 8
COLUMNS = 4

SIDE = 300
"""Of a tile in pixels."""
MARGIN = 15
LETTERS = 26
"""Size of a caption's letters in pixels. They can be read if the picture is shown 600 pixels wide."""
CAPTION = 2 * LETTERS + 2 * MARGIN
"""Height of a caption of two lines in pixels."""
MOST_CHARACTERS = 18
"""Of a line of a caption."""


def require_drawable(folder: Path, inputs: Tensor) -> None:
    """Raise an error where inputs are no images or the folder cannot be made; make the folder."""
    if inputs.ndim != 4:
        shape = tuple(inputs.shape[1:])
        raise BadSetting(
            f"{named('out')} draws images (C, H, W), and these inputs have shape {shape}", "leave it out", setting="out"
        )
    if folder.is_file():
        raise BadSetting(f"{named('out', folder)} is a file", f"give a folder for {PICTURE}", setting="out")
    new_file(folder).mkdir(exist_ok=True)


def write_contact_sheet(folder: Path, images: ImageSource, transforms: Transforms, captions: Sequence[str]) -> Path:
    """Draw up to eight images, each above its file name and its caption; returns the file."""
    in_order = np.argsort(images.positions)
    positions = in_order[spread(len(images), TILES)].tolist()
    rows = -(-len(positions) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIDE + MARGIN), rows * (SIDE + CAPTION)), "white")
    drawing = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(LETTERS)
    for place, position in enumerate(positions):
        left = place % COLUMNS * (SIDE + MARGIN)
        top = place // COLUMNS * (SIDE + CAPTION)
        tile = _picture(transforms.evaluation(images.image(position)), transforms.preprocessing)
        sheet.paste(tile, (left, top))
        lines = [_shortened(showable(line)) for line in (_name(images, position), captions[position])]
        drawing.multiline_text((left, top + SIDE), "\n".join(lines), "black", font)
    file = folder / PICTURE
    content = io.BytesIO()
    sheet.save(content, "png")
    write_bytes(file, content.getvalue())
    return file


def _picture(values: Tensor, preprocessing: Preprocessing | None) -> Image.Image:
    """A picture of a network's input (C, H, W) without its normalisation. An unknown one is replaced by scaling to the
    range. The picture has the first three channels, or the first one of fewer."""
    if preprocessing is None or len(preprocessing.mean) not in (1, len(values)):
        values = values - values.min()
        values = values / values.max().clamp(min=1e-12)
    else:
        mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
        std = torch.tensor(preprocessing.std).view(-1, 1, 1)
        values = values * std + mean
    channels = values[:3] if len(values) >= 3 else values[:1]
    picture = to_pil_image(channels.float().clamp(0, 1)).convert("RGB")
    return ImageOps.contain(picture, (SIDE, SIDE), Image.Resampling.NEAREST)


def _name(images: ImageSource, position: int) -> str:
    """File name of an image, or its number."""
    if images.paths is None:
        return f"image {images.positions[position]}"
    return os.path.basename(images.paths[position])


def _shortened(text: str) -> str:
    """The text without its middle, if it is longer than a line of a caption."""
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[: half - 1]}…{text[-half:]}"
