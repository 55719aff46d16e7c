"""Labels that a user gave of target images: some train the model, the others certify it, and no image does both.

The run's seed draws the images that train, before any label is read. So a longer file of answers changes no image's
role.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.answers import COLUMNS, read_answers
from tllib_ancon.data.domain import Domain, checked_classes
from tllib_ancon.data.labels import Labels, counted_from_one
from tllib_ancon.runtime.errors import BadSetting, UserError, named
from tllib_ancon.runtime.text import csv_text
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.files import write_bytes
from tllib_ancon.training.progress import Progress

TAUGHT_SHARE = 0.5
"""Share of the images whose labels may train."""
TEACHING = 29
"""Number beside the run's seed that sets this draw apart from others by the same seed."""


def certifying_positions(recorded: Record, count: int) -> Labels:
    """Positions of the images that certify the run of this ``config.json``: all if no label trained it."""
    taught = recorded.get("taught")
    if taught is None:
        return np.arange(count)
    return np.flatnonzero(~_teach(taught["seed"], count))


def _teach(seed: int, count: int) -> NDArray[np.bool_]:
    """(N,) whether each image may teach."""
    return np.random.default_rng((seed, TEACHING)).random(count) < TAUGHT_SHARE


def image_names(images: Domain, root: str | None) -> list[str]:
    """Paths of the images below the folder of the data, or their positions where they are no files."""
    if images.paths is None:
        return [str(position) for position in images.positions]
    folder = str(root).rstrip("/") + "/"
    return [path.removeprefix(folder) for path in images.paths]


def labels_of_answers(answers: Any, images: Domain, root: str | None) -> Labels:
    """The class of each image, (N,), of a file or an array; -1 without an answer, K if nobody can tell the class."""
    if not isinstance(answers, str | Path):
        return checked_classes(
            named("answers"), answers, len(images), images.num_classes, unknown=True, names=images.classes
        )
    classes = np.full(len(images), -1)
    names = image_names(images, root)
    for position, answer in read_answers(Path(answers), names, images.classes, root).items():
        classes[position] = images.num_classes
        if isinstance(answer, int):
            classes[position] = answer
    return classes


def write_questions(file: Path, paths: Sequence[str]) -> None:
    """Write the images to label as a table; a file of the same name that may hold labels is an error."""
    rows = [COLUMNS, *([path, ""] for path in paths)]
    content = csv_text(rows).encode()
    if file.exists() and file.read_bytes() != content:
        raise BadSetting(
            f"{named('questions', file)} exists and may hold labels, which would be lost",
            f"read them with {named('answers', file)}, without {named('questions')}, or give another file",
            setting="questions",
        )
    write_bytes(file, content)


def taught_labels(
    config: AdaptConfig, images: Domain, passed_answers: ArrayLike | None, source_settings: Record
) -> Labels | None:
    """The (N,) labels that train the model, -1 for none; None where no label does. ``source_settings`` is
    ``config.json`` of the run that trained the source model."""
    answers = config.answers if passed_answers is None else passed_answers
    if answers is None:
        return None
    earlier_seed = source_settings.get("taught", {}).get("seed", config.seed)
    if earlier_seed != config.seed:
        raise UserError(
            f"labels taught this source model with {named('seed', earlier_seed)}",
            "give the same, so that no image that certified teaches",
        )
    classes = labels_of_answers(answers, images, config.root)
    has_class = (classes >= 0) & (classes < images.num_classes)
    teaches = has_class & _teach(config.seed, len(images))
    num_answers = int(has_class.sum())
    num_taught = int(teaches.sum())
    if num_answers < 2 or num_taught == 0:
        raise BadSetting(
            f"{named('answers')} name the class of {num_answers} images, of which {num_taught} may teach",
            "label more",
            setting="answers",
        )
    line = counted_from_one(classes[has_class], images.num_classes)
    if line is not None and num_answers >= 2 * images.num_classes:
        Progress(config.quiet).line(line)
    Progress(config.quiet).line(f"labels of {num_taught} images of the target teach")
    return np.where(teaches, classes, -1).astype(np.int64)
