"""Small comparisons of two models."""

import numpy as np

from tllib_ancon.certificate.session import Comparison

CLASSES = ["bike", "mug", "pen", "lamp"]


def comparison(num_images=100, disagreements=60, classes=CLASSES):
    generator = np.random.default_rng(0)
    start = generator.integers(0, len(CLASSES), num_images)
    adapted = start.copy()
    moved = generator.permutation(num_images)[:disagreements]
    steps = generator.integers(1, len(CLASSES), disagreements)
    adapted[moved] = (start[moved] + steps) % len(CLASSES)
    names = [f"amazon/{i:03}.jpg" for i in range(num_images)]
    return Comparison(start, adapted, names, classes)


def answers(models, favouring=0.9, seed=1):
    """Of all disagreements; this share of them has the adapted model's class."""
    adapted_right = np.random.default_rng(seed).random(len(models)) < favouring
    labels = np.where(adapted_right, models.adapted, models.start)
    return {int(position): int(labels[position]) for position in models.disagreements}


def disk_is_full(descriptor):
    """In place of os.fsync."""
    raise OSError(28, "No space left on device")


def answer_as_adapted(session):
    """Answer every question by the adapted model's class."""
    while session.question is not None:
        session.answer(int(session.comparison.adapted[session.question.position]))
