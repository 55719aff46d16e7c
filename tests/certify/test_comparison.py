from __future__ import annotations

import numpy as np
import pytest

from tests.certify.examples import CLASSES, comparison
from tllib_ancon.certify.comparison import Comparison
from tllib_ancon.errors import UserError


def test_disagreements_are_where_the_classes_differ() -> None:
    models = Comparison(np.array([0, 1, 2, 3]), np.array([0, 2, 2, 0]), list("abcd"), CLASSES)
    assert models.disagreements.tolist() == [1, 3]
    assert len(models) == 4


def test_lists_are_taken_too() -> None:
    assert Comparison([0, 1], [1, 1], ["a", "b"], CLASSES).disagreements.tolist() == [0]  # type: ignore[arg-type]


def test_models_that_never_disagree_leave_nothing_to_certify() -> None:
    with pytest.raises(UserError, match=r"nothing to certify: .* equal on all 1,200 images"):
        comparison(1200, 0)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([0, 1], r"shape \(2,\)"),
        ([[0], [1], [2]], r"shape \(3, 1\)"),
        ([0.0, 1.0, 2.0], "float64"),
        ([True, False, True], "bool"),
        ([0, 1, 4], "classes from 0 to 3"),
        ([0, -1, 2], "classes from 0 to 3"),
    ],
)
def test_predictions_that_are_none(start: list[float], message: str) -> None:
    for start_model, adapted, name in ((start, [0, 0, 0], "start"), ([0, 0, 0], start, "adapted")):
        with pytest.raises(UserError, match=f"the {name} model's predictions .*{message}"):
            Comparison(np.array(start_model), np.array(adapted), list("abc"), CLASSES)


def test_no_image() -> None:
    with pytest.raises(UserError, match="not all classes"):
        Comparison(np.zeros(0, dtype=int), np.zeros(0, dtype=int), [], CLASSES)


def test_the_fingerprint_is_of_names_classes_and_both_predictions() -> None:
    def fingerprint(start: int = 0, adapted: int = 1, name: str = "a", classes: list[str] = CLASSES) -> str:
        return Comparison(np.array([start]), np.array([adapted]), [name], classes).fingerprint

    variants = [
        fingerprint(),
        fingerprint(start=2),
        fingerprint(adapted=2),
        fingerprint(name="b"),
        fingerprint(classes=CLASSES[::-1]),
    ]
    assert len(set(variants)) == len(variants)
    assert fingerprint() == fingerprint()
    assert fingerprint(name="caf\udce9.jpg")
