"""A picture of some images as a network gets them, with file name and predicted class."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from tllib_ancon.data.images import Files
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import showable
from tllib_ancon.training.files import new_file, write_bytes
from tllib_ancon.training.subject import Subject

PICTURE = "images.png"
TILES, COLUMNS = 8, 4
SIDE, GAP = 300, 16
"""Side of a tile and distance between tiles, in pixels."""

LETTER = 27
"""Height of a caption's letters in pixels: 13 when the picture is shown 600 pixels wide."""

LINES = 2


def require_pictures(folder: Path, inputs: Tensor) -> None:
    """Raise an error where inputs cannot be drawn or the folder cannot be made; make the folder."""
    if inputs.ndim != 4:
        shape = tuple(inputs.shape[1:])
        raise UserError(f"`out` draws images (C, H, W), and these inputs have shape {shape}; leave it out")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"`out={folder}` is a file; give a folder for {PICTURE}")
    new_file(folder)
    folder.mkdir(exist_ok=True)


def write_tiles(file: Path, subject: Subject, names: Sequence[str]) -> Path:
    """Draw up to eight images of the sample; returns the file."""
    places = np.linspace(0, len(subject.sample) - 1, min(TILES, len(subject.sample))).round().astype(int)
    tensors = [subject.transforms.evaluation(subject.sample.image(int(place))) for place in places]
    pictures = as_pictures(tensors, subject.transforms.preprocessing)
    predicted = ["no logits"] * len(subject.sample)
    if subject.sample_pass is not None:
        predicted = [names[label] for label in subject.sample_pass.logits.argmax(1).tolist()]
    captions = [(_name(subject, place), predicted[place]) for place in places.tolist()]
    content = io.BytesIO()
    sheet(pictures, captions).save(content, "PNG")
    write_bytes(file, content.getvalue())
    return file


def _name(subject: Subject, place: int) -> str:
    """File name of an image of the sample, or its number."""
    sample = subject.sample
    position = int(sample.positions[place])
    if isinstance(sample.images, Files):
        return os.path.basename(sample.images.path(position))
    return f"image {position}"


def as_pictures(tensors: Sequence[Tensor], preprocessing: Preprocessing | None) -> list[Image.Image]:
    """Network inputs (C, H, W) without their normalisation. Without a known one, values are scaled by their range."""
    if preprocessing is None or len(preprocessing.mean) not in (1, tensors[0].shape[0]):
        least = min(float(tensor.min()) for tensor in tensors)
        most = max(float(tensor.max()) for tensor in tensors)
        values = [(tensor - least) / max(most - least, 1e-12) for tensor in tensors]
    else:
        mean, std = (torch.tensor(part).view(-1, 1, 1) for part in (preprocessing.mean, preprocessing.std))
        values = [tensor * std + mean for tensor in tensors]
    return [_picture(value) for value in values]


def _picture(values: Tensor) -> Image.Image:
    """Values (C, H, W) from 0 to 1 as a picture: of one channel grey, of several the first three."""
    channels = values[:3]
    if len(values) < 3:
        channels = values[:1].expand(3, -1, -1)
    levels = (255 * channels.clamp(0, 1)).round().byte()
    return Image.fromarray(levels.movedim(0, -1).cpu().numpy())


def sheet(pictures: Sequence[Image.Image], captions: Sequence[tuple[str, ...]]) -> Image.Image:
    """Pictures in rows of four, each above its caption, a text for each line."""
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), LETTER)
    height = SIDE + round(LINES * 1.3 * LETTER) + GAP
    rows = -(-len(pictures) // COLUMNS)
    canvas = Image.new("RGB", (GAP + COLUMNS * (SIDE + GAP), GAP + rows * (height + GAP)), "white")
    draw = ImageDraw.Draw(canvas)
    for number, (picture, lines) in enumerate(zip(pictures, captions, strict=True)):
        left = GAP + (number % COLUMNS) * (SIDE + GAP)
        top = GAP + (number // COLUMNS) * (height + GAP)
        scale = SIDE / max(picture.size)
        size = tuple(max(1, round(scale * length)) for length in picture.size)
        resample = Image.Resampling.NEAREST if scale > 4 else Image.Resampling.BICUBIC
        canvas.paste(picture.resize((size[0], size[1]), resample), (left + (SIDE - size[0]) // 2, top))
        for line, text in enumerate(lines):
            place = (left, top + SIDE + GAP // 2 + round(1.3 * LETTER * line))
            draw.text(place, fitting(showable(text), font), fill="black", font=font)
    return canvas


def fitting(text: str, font: ImageFont.FreeTypeFont) -> str:
    """The text, shortened in its middle until it is no wider than a tile."""
    shown = text
    kept = len(text)
    while font.getlength(shown) > SIDE and kept > 2:
        kept -= 1
        shown = f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"
    return shown
