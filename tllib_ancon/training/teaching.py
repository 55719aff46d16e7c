"""Labels that a user gave of target images: some teach, the others certify, and no image does both.

Which images may teach is drawn by the run's seed before any label is read, for all N images at once: so a longer file
of answers changes the role of none. The images that certify are the others, and a certificate speaks of these alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tllib_ancon.certifying.session import Answer, Comparison, read_answers
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.errors import UserError

DRAW = 29
"""Beside the run's seed: of no other draw by it."""
FEWEST = 2

Labels = NDArray[np.int64]


def certifying(recorded: Mapping[str, Any], count: int) -> Labels | None:
    """The positions, among all ``count`` images, of those that certify the run of this ``config.json``; None where no
    label taught it or its source model."""
    taught = recorded.get("taught")
    return taught and np.flatnonzero(~_teach(taught["teach"], taught["seed"], count))


def _teach(share: float, seed: int, count: int) -> NDArray[np.bool_]:
    return np.random.default_rng((seed, DRAW)).random(count) < share


def names_of(images: Domain, root: str | None) -> list[str]:
    """Paths of the images below the folder of the data, or their positions where they are no files."""
    if images.paths is None:
        return [str(position) for position in images.positions]
    return [path.removeprefix(str(root).rstrip("/") + "/") for path in images.paths]


def said_of(file: str | Path, images: Domain, names: Sequence[str]) -> dict[int, Answer]:
    """Position of an image -> its answer, of a file of answers about any of the images."""
    one = np.zeros(len(images), dtype=np.int64)
    return read_answers(Path(file), Comparison(one, one + 1, names, images.classes))


def answers_of(given: Any, images: Domain, names: Sequence[str]) -> Labels | None:
    """The class of each image, (N,), of a file or an array; -1 for one without an answer, K for one whose class nobody
    can tell."""
    if given is None:
        return None
    if isinstance(given, str | Path):
        answers = np.full(len(images), -1)
        for position, answer in said_of(given, images, names).items():
            answers[position] = answer if isinstance(answer, int) else images.num_classes  # which no model says
        return answers
    answers = np.asarray(given)
    if answers.shape != (len(images),) or answers.dtype.kind not in "iu" or answers.max() >= images.num_classes:
        raise UserError(
            f"`answers` have shape {answers.shape}; give for each of {len(images):,} images a class from 0 to "
            f"{images.num_classes - 1}, or -1"
        )
    return answers


def taught_labels(
    config: AdaptConfig, images: Domain, answers: ArrayLike | None, before: Mapping[str, Any] | None
) -> tuple[Labels | None, dict[str, Any]]:
    """The (N,) labels that teach, -1 for an image without one, and what the run records of them.

    ``answers`` are (N,) classes, -1 where none is known, in place of the configuration's file; ``before`` is what the
    run recorded that trained the source model.
    """
    if (config.teach is None) != (answers is None and config.answers is None):
        raise UserError("`teach` and `answers` go together: labels of some images, and the share of them that teaches")
    if config.teach is None:
        return None, {"taught": before} if before else {}
    drawn = {"teach": config.teach, "seed": config.seed}
    if before and drawn != {name: before[name] for name in drawn}:
        raise UserError(
            f"labels taught this source model with `teach={before['teach']}` and `seed={before['seed']}`; give the "
            "same, so that no image that certified teaches"
        )
    labels = answers_of(config.answers if answers is None else answers, images, names_of(images, config.root))
    assert labels is not None
    labels = np.where(labels < images.num_classes, labels, -1).astype(np.int64)
    given, teach = int((labels >= 0).sum()), _teach(config.teach, config.seed, len(images))
    labels = np.where(teach, labels, -1)
    if given < FEWEST or not (labels >= 0).any():
        raise UserError(
            f"`answers` name the class of {given} images, of which {(labels >= 0).sum()} may teach; label more images"
        )
    digest = hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()[:16]
    return labels, {"taught": {**drawn, "labels": int((labels >= 0).sum()), "labels_sha256": digest}}
