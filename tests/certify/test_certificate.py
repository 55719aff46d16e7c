from __future__ import annotations

import json

import pytest

from tests.certify.examples import comparison, labels
from tllib_ancon.certify.answers import ANOTHER, CANNOT_TELL, answers_of_labels
from tllib_ancon.certify.certificate import certificate_of, in_words
from tllib_ancon.certify.session import Session


def adapted_class(session: Session) -> int:
    assert session.question is not None
    return int(session.comparison.adapted[session.question.position])


@pytest.mark.parametrize(("favouring", "verdict", "returned"), [(0.95, "better", "adapted"), (0.05, "worse", "start")])
def test_a_verdict(favouring: float, verdict: str, returned: str) -> None:
    models = comparison(200, 100)
    session = Session(models, delta=0.1, margin=0.01, seed=3)
    session.answer_all(answers_of_labels(labels(models, favouring), models))
    certificate = json.loads(json.dumps(certificate_of(session), allow_nan=False))
    assert (certificate["verdict"], certificate["returned"]) == (verdict, returned)
    lower, upper = certificate["interval"]
    assert lower <= certificate["difference"] <= upper
    assert lower > 0.01 if verdict == "better" else upper < -0.01
    assert certificate["labels"] == len(session.answers)
    assert certificate["adapted_right"] + certificate["start_right"] == certificate["labels"]
    expected = {"images": 200, "disagreements": 100, "delta": 0.1, "margin": 0.01, "seed": 3, "threshold": 20}
    assert expected.items() <= certificate.items()
    assert certificate["labels_needed"] == []
    assert certificate["settled"]
    (line,) = in_words(certificate)
    found = f"is between {100 * lower:+.1f} and {100 * upper:+.1f} points (wrong with probability"
    assert line.startswith(f"certified {verdict}: the adapted model's accuracy minus the start's {found}")
    assert "wrong with probability 10 % at most" in line
    assert f"{certificate['labels']} of 100 disagreements have a label, of 200 images" in line


def test_without_a_label_nothing_is_certified_and_it_says_what_it_would_take() -> None:
    certificate = certificate_of(Session(comparison(2000, 500)))
    assert certificate["verdict"] == "undecided"
    assert certificate["returned"] == "start"
    assert certificate["difference"] is None
    assert certificate["interval"] == [-0.25, 0.25]
    rows = certificate["labels_needed"]
    assert [row["favouring"] for row in rows] == [0.6, 0.7, 0.8]
    assert [row["gain"] for row in rows] == pytest.approx([0.05, 0.1, 0.15])
    assert 500 > rows[0]["median"] > rows[1]["median"] > rows[2]["median"] > 10
    assert all(row["ninetieth_percentile"] >= row["median"] for row in rows)
    lines = in_words(certificate)
    assert lines[0].startswith(
        "not certified: the adapted model's accuracy minus the start's is between -25.0 and +25.0 points"
    )
    assert lines[1].startswith(
        "if the adapted model is right on 60 % of the disagreements, a gain of 5.0 points, about "
    )
    assert len(lines) == 4


def test_images_that_cannot_be_told_are_counted_and_turned_against_the_verdict() -> None:
    session = Session(comparison(400, 300))
    for _ in range(5):
        session.answer(CANNOT_TELL)
    session.answer(ANOTHER)
    while session.question is not None:
        session.answer(adapted_class(session))
    certificate = certificate_of(session)
    assert (certificate["cannot_tell"], certificate["another"]) == (5, 1)
    assert certificate["verdict"] == "better"
    assert certificate["verdict_if_cannot_tell_counts_against"] == "undecided"
    assert (
        in_words(certificate)[1]
        == "the verdict would be undecided if the 5 images whose class nobody could tell counted against it"
    )


def test_a_verdict_that_stands_whatever_the_untold_images_are() -> None:
    session = Session(comparison(60, 9))
    session.answer(CANNOT_TELL)
    while session.question is not None:
        session.answer(adapted_class(session))
    certificate = certificate_of(session)
    assert certificate["verdict"] == "better"
    assert certificate["e_better"] is None
    assert certificate["verdict_if_cannot_tell_counts_against"] == "better"
    assert len(in_words(certificate)) == 1


def test_a_difference_within_the_margin_is_settled_without_a_verdict() -> None:
    certificate = certificate_of(Session(comparison(1000, 5), margin=0.01))
    assert certificate["settled"]
    assert certificate["labels_needed"] == []
    assert in_words(certificate)[1] == "further labels decide nothing: the difference is within the margin of 0.01"
