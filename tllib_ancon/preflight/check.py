"""Check a model with images before an adaptation: what ``adapt`` would assume of both, a line for each fact."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tllib_ancon.config.check import CheckConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.batches import Batch, are_images, shape_text, tree_map
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import Files, spread
from tllib_ancon.data.transforms import Preprocessing, Transform
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.preflight.case import Case, open_case
from tllib_ancon.preflight.epoch_cost import cost
from tllib_ancon.preflight.fact import LEGEND, WRONG, Fact
from tllib_ancon.preflight.image_facts import channels, classes, pixels, preprocessing, target_images
from tllib_ancon.preflight.model_facts import batch_norm, mirror, output, parameters, predictions
from tllib_ancon.preflight.rehearsal import Rehearsal, rehearse
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import Shown, showable
from tllib_ancon.runtime.types import Record
from tllib_ancon.training import devices
from tllib_ancon.training.files import new_file, write_bytes
from tllib_ancon.training.image_transforms import TransformSource
from tllib_ancon.training.source import Model

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


@dataclass(frozen=True, repr=False)
class CheckResult(Shown):
    """Facts about a model and images; ``print`` shows a line for each.

    Attributes:
        images: number and source of the images
        classes: number and order of the model's classes, beside the names that the model and the folder have
        pixels: size and range of decoded images
        channels: channels of the images and of the network's input
        preprocessing: resizing, crop and normalisation, and where they come from
        output: logits, probabilities, one logit or something else; head and features
        mirror: share of some images whose predicted class a mirror changes; a large one beside that of shifted images
        predictions: frequencies of the predicted classes in a sample
        parameters: which parameters learn with these settings
        batch_norm: number of batch-norm layers, and their statistics while adapting
        cost: estimated time and memory of one epoch, from two training steps
        picture: file of eight images as the network gets them; None without ``out``
    """

    images: Fact
    classes: Fact
    pixels: Fact
    channels: Fact
    preprocessing: Fact
    output: Fact
    mirror: Fact
    predictions: Fact
    parameters: Fact
    batch_norm: Fact
    cost: Fact
    picture: Path | None = None

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts by name, in the order of the lines."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Fact)}

    @property
    def is_wrong(self) -> bool:
        """Whether ``adapt`` would fail."""
        return any(fact.mark == WRONG for fact in self.facts.values())

    def lines(self, only: Iterable[str] | None = None) -> list[str]:
        """The lines that ``print`` shows; ``only`` as for :meth:`Fact.line`."""
        lines = [fact.line(name, only) for name, fact in self.facts.items()]
        marks = {fact.mark for fact in self.facts.values()}
        lines += [legend for mark, legend in LEGEND.items() if mark in marks]
        if self.picture is not None:
            lines.append(f"images as the network gets them: {self.picture}")
        return lines

    def to_dict(self) -> Record:
        """The facts by name, of types that JSON has, and the file of the picture."""
        facts: dict[str, Any] = {name: dataclasses.asdict(fact) for name, fact in self.facts.items()}
        if self.picture is not None:
            facts["picture"] = str(self.picture)
        return facts

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@recording_gradients()
def check(
    model: Model | None = None,
    images: Any = None,
    *,
    head: str | None = None,
    train_transform: Transform | None = None,
    evaluation_transform: Transform | None = None,
    out: str | Path | None = None,
    config: CheckConfig | None = None,
    **settings: Any,
) -> CheckResult:
    """Check what :func:`tllib_ancon.adapt` would make of a model and images, before you adapt.

    It predicts up to 128 images and tries two training steps on a copy. The model is unchanged.

    Args:
        model, images, head, train_transform, evaluation_transform: as for :func:`tllib_ancon.adapt`
        out: folder for ``images.png``, a picture of eight images as the network gets them, with their predicted
            classes
        config: all settings at once
        **settings: those of :func:`tllib_ancon.adapt`; each line names the settings that change it. See
            :class:`~tllib_ancon.config.check.CheckConfig`

    Returns: the facts, a line for each

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)

    Example::

        >>> print(tllib_ancon.check(model, "photos/", out="looked_at"))
    """
    requested = settings_of_call(CheckConfig, config, settings).with_paths(checkpoint=model, out=out)
    if requested.root is None:
        requested = requested.with_paths(root=images)
    if requested.out is not None:
        require(f"`out={requested.out}`", "matplotlib", extra="report")
    user_transforms = TransformSource.of_call(train_transform, evaluation_transform)
    with devices.using_processor(requested.threads):
        case = open_case(requested.replace(quiet=True), model, images, head, user_transforms)
        if requested.out is not None:
            _require_pictures(Path(requested.out), case.probe)
        rehearsal = rehearse(case)
        picture = None
        if requested.out is not None:
            picture = _write_tiles(Path(requested.out, PICTURE), case, rehearsal)
        return CheckResult(
            images=target_images(case),
            classes=classes(case),
            pixels=pixels(case),
            channels=channels(case),
            preprocessing=preprocessing(case),
            output=output(case, rehearsal),
            mirror=mirror(case),
            predictions=predictions(case, rehearsal),
            parameters=parameters(case, rehearsal),
            batch_norm=batch_norm(case),
            cost=cost(case, rehearsal),
            picture=picture,
        )


def _require_pictures(folder: Path, inputs: Batch) -> None:
    """Raise an error where inputs cannot be drawn or the folder cannot be made; make the folder."""
    if not are_images(inputs):
        shape = shape_text(tree_map(lambda tensor: tensor[0], inputs))
        raise UserError(f"`out` draws images (C, H, W), and these inputs have shape {shape}; leave it out")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"`out={folder}` is a file; give a folder for {PICTURE}")
    new_file(folder)
    folder.mkdir(exist_ok=True)


def _write_tiles(file: Path, case: Case, rehearsal: Rehearsal | None) -> Path:
    """Draw up to eight images of the sample, each above its file name and predicted class; returns the file."""
    from matplotlib.figure import Figure  # for pictures alone

    sample = case.sample
    positions = spread(len(sample), TILES).tolist()
    tensors = [case.transforms.evaluation(sample.image(position)) for position in positions]
    rows = math.ceil(len(positions) / COLUMNS)
    figure = Figure(figsize=(COLUMNS * SIDE, rows * (SIDE + CAPTION)), dpi=DPI, layout="constrained")
    for place, picture in enumerate(_as_pictures(tensors, case.transforms.preprocessing)):
        panel = figure.add_subplot(rows, COLUMNS, place + 1)
        panel.imshow(picture)
        panel.set(xticks=[], yticks=[], frame_on=False)
        lines = (_name(sample, positions[place]), _prediction(case, rehearsal, positions[place]))
        caption = "\n".join(_shortened(showable(line)) for line in lines)
        panel.set_xlabel(caption, loc="left", fontsize=LETTERS, parse_math=False)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
        figure.savefig(content, format="png")
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
