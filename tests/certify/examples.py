"""Small comparisons of two models."""

from collections.abc import Sequence

import numpy as np

from tllib_ancon.certificate.session import Answer, Comparison, Session

CLASSES = ["bike", "mug", "pen", "lamp"]


def comparison(num_images: int = 100, disagreements: int = 60, classes: Sequence[str] = CLASSES) -> Comparison:
    generator = np.random.default_rng(0)
    start = generator.integers(0, len(CLASSES), num_images)
    adapted = start.copy()
    moved = generator.permutation(num_images)[:disagreements]
    adapted[moved] = (start[moved] + generator.integers(1, len(CLASSES), disagreements)) % len(CLASSES)
    return Comparison(start, adapted, [f"amazon/{i:03}.jpg" for i in range(num_images)], classes)


def answers(models: Comparison, favouring: float = 0.9, seed: int = 1) -> dict[int, Answer]:
    """Of all disagreements; this share of them has the adapted model's class."""
    adapted_right = np.random.default_rng(seed).random(len(models)) < favouring
    labels = np.where(adapted_right, models.adapted, models.start)
    return {int(position): int(labels[position]) for position in models.disagreements}


def disk_is_full(descriptor: int):
    """In place of os.fsync."""
    raise OSError(28, "No space left on device")


def answer_as_adapted(session: Session):
    """Answer every question by the adapted model's class."""
    while session.question is not None:
        session.answer(int(session.comparison.adapted[session.question.position]))
