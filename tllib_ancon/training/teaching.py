"""Labels that a user gave of target images: some train the model, the others certify it, and no image does both.

The run's seed draws the images that train, before any label is read. So a longer file of answers changes no image's
role.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.answers import read_answers
from tllib_ancon.data.domain import Domain, checked_classes
from tllib_ancon.data.labels import counted_from_one
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.progress import Progress

DRAW = 29
"""Beside the run's seed: of no other draw by it."""

Labels = NDArray[np.int64]


def certifying(recorded: Mapping[str, Any], count: int) -> Labels | None:
    """Positions of the images that certify the run of this ``config.json``; None if no label trained it."""
    taught = recorded.get("taught")
    return taught and np.flatnonzero(~_teach(taught["teach"], taught["seed"], count))


def _teach(fraction: float, seed: int, count: int) -> NDArray[np.bool_]:
    return np.random.default_rng((seed, DRAW)).random(count) < fraction


def names_of(images: Domain, root: str | None) -> list[str]:
    """Paths of the images below the folder of the data, or their positions where they are no files."""
    if images.paths is None:
        return [str(position) for position in images.positions]
    return [path.removeprefix(str(root).rstrip("/") + "/") for path in images.paths]


def answers_of(given: Any, images: Domain, names: Sequence[str]) -> Labels:
    """The class of each image, (N,), of a file or an array; -1 without an answer, K if nobody can tell the class."""
    if isinstance(given, str | Path):
        answers = np.full(len(images), -1)
        for position, answer in read_answers(Path(given), names, images.classes).items():
            answers[position] = answer if isinstance(answer, int) else images.num_classes
        return answers
    return checked_classes("`answers`", given, len(images), images.num_classes, unknown=True, names=images.classes)


def taught_labels(
    config: AdaptConfig, images: Domain, answers: ArrayLike | str | Path | None, recorded: dict[str, Any]
) -> Labels:
    """The (N,) labels that train the model, -1 for none; ``recorded`` gets their record."""
    if config.teach is None or answers is None:
        raise UserError(
            "`teach` and `answers` go together; pass both: labels of some images, and the fraction that teaches"
        )
    before, drawn = recorded.get("taught"), {"teach": config.teach, "seed": config.seed}
    if before and before != {**before, **drawn}:
        raise UserError(
            f"labels taught this source model with `teach={before['teach']}` and `seed={before['seed']}`; give the "
            "same, so that no image that certified teaches"
        )
    answered = answers_of(answers, images, names_of(images, config.root))
    known = (answered >= 0) & (answered < images.num_classes)
    labels = np.where(known & _teach(config.teach, config.seed, len(images)), answered, -1).astype(np.int64)
    count = int((labels >= 0).sum())
    if known.sum() < 2 or not count:
        raise UserError(f"`answers` name the class of {known.sum()} images, of which {count} may teach; label more")
    line = counted_from_one(answered[known], images.num_classes)
    if line is not None and known.sum() >= 2 * images.num_classes:
        Progress(config.quiet).line(line)
    recorded["taught"] = {**drawn, "labels": count, "labels_sha256": hashlib.sha256(labels.tobytes()).hexdigest()}
    return labels
