"""A picture of some images as a network gets them, with file name and predicted class."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from tllib_ancon.data.batches import Batch, are_images, shape_text, tree_map
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Files, spread
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.preflight.case import Case
from tllib_ancon.preflight.rehearsal import Rehearsal
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import showable
from tllib_ancon.training.files import new_file, write_bytes

PICTURE = "images.png"
TILES = 8
COLUMNS = 4

SIDE = 300
"""Side of a tile in pixels."""

GAP = 16
"""Distance between tiles in pixels."""

LETTER = 27
"""Height of a caption's letters in pixels: 13 when the picture is shown 600 pixels wide."""

LINES = 2
"""Lines of a caption."""

LINE_HEIGHT = 1.3 * LETTER


def require_pictures(folder: Path, inputs: Batch) -> None:
    """Raise an error where inputs cannot be drawn or the folder cannot be made; make the folder."""
    if not are_images(inputs):
        shape = shape_text(tree_map(lambda tensor: tensor[0], inputs))
        raise UserError(f"`out` draws images (C, H, W), and these inputs have shape {shape}; leave it out")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"`out={folder}` is a file; give a folder for {PICTURE}")
    new_file(folder)
    folder.mkdir(exist_ok=True)


def write_tiles(file: Path, case: Case, rehearsal: Rehearsal | None) -> Path:
    """Draw up to eight images of the sample; returns the file."""
    sample = case.sample
    positions = spread(len(sample), TILES).tolist()
    tensors = [case.transforms.evaluation(sample.image(position)) for position in positions]
    pictures = _as_pictures(tensors, case.transforms.preprocessing)
    captions = [(_name(sample, position), _prediction(case, rehearsal, position)) for position in positions]
    content = io.BytesIO()
    _sheet(pictures, captions).save(content, "PNG")
    write_bytes(file, content.getvalue())
    return file


def _name(sample: Domain, position: int) -> str:
    """File name of an image of the sample, or its number."""
    number = int(sample.positions[position])
    if isinstance(sample.images, Files):
        return os.path.basename(sample.images.path(number))
    return f"image {number}"


def _prediction(case: Case, rehearsal: Rehearsal | None, position: int) -> str:
    """Name of the predicted class of an image of the sample."""
    if rehearsal is None:
        return "no logits"
    return case.class_names[int(rehearsal.logits[position].argmax())]


def _as_pictures(tensors: Sequence[Tensor], preprocessing: Preprocessing | None) -> list[Image.Image]:
    """Network inputs (C, H, W) without their normalisation; scaled by their range if it is unknown."""
    if preprocessing is None or len(preprocessing.mean) not in (1, tensors[0].shape[0]):
        least = min(float(tensor.min()) for tensor in tensors)
        most = max(float(tensor.max()) for tensor in tensors)
        return [_picture((tensor - least) / max(most - least, 1e-12)) for tensor in tensors]
    mean = torch.tensor(preprocessing.mean).view(-1, 1, 1)
    std = torch.tensor(preprocessing.std).view(-1, 1, 1)
    return [_picture(tensor * std + mean) for tensor in tensors]


def _picture(values: Tensor) -> Image.Image:
    """Values (C, H, W) from 0 to 1 as a picture: of one channel grey, of several the first three."""
    channels = values[:3]
    if len(values) < 3:
        channels = values[:1].expand(3, -1, -1)
    levels = (255 * channels.clamp(0, 1)).round().byte()
    return Image.fromarray(levels.movedim(0, -1).cpu().numpy())


def _sheet(pictures: Sequence[Image.Image], captions: Sequence[tuple[str, ...]]) -> Image.Image:
    """Pictures in rows of four, each above its caption, a text for each line."""
    import matplotlib

    font = ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), LETTER)
    width = SIDE + GAP
    height = SIDE + round(LINES * LINE_HEIGHT) + 2 * GAP
    rows = math.ceil(len(pictures) / COLUMNS)
    canvas = Image.new("RGB", (GAP + COLUMNS * width, GAP + rows * height), "white")
    draw = ImageDraw.Draw(canvas)
    for number, picture in enumerate(pictures):
        left = GAP + (number % COLUMNS) * width
        top = GAP + (number // COLUMNS) * height
        canvas.paste(_tile(picture), (left, top))
        for line, text in enumerate(captions[number]):
            corner = (left, top + SIDE + GAP // 2 + round(LINE_HEIGHT * line))
            draw.text(corner, _fitting(showable(text), font), fill="black", font=font)
    return canvas


def _tile(picture: Image.Image) -> Image.Image:
    """The picture with its longer side as long as a tile's, at the top of a white square."""
    resample = Image.Resampling.BICUBIC
    if 4 * max(picture.size) < SIDE:  # single pixels stay visible
        resample = Image.Resampling.NEAREST
    return ImageOps.pad(picture, (SIDE, SIDE), resample, "white", centering=(0.5, 0))


def _fitting(text: str, font: ImageFont.FreeTypeFont) -> str:
    """The text, shortened in its middle until it is no wider than a tile."""
    shortened = text
    length = len(text)
    while font.getlength(shortened) > SIDE and length > 2:
        length -= 1
        end = length - length // 2
        shortened = f"{text[: length // 2]}…{text[-end:]}"
    return shortened
