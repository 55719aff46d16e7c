"""A session of questions: every answer is on disk, another session's file is refused, and the verdict is the test's."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.certificates import CLASSES, answer_as_adapted, answers, comparison, disk_is_full
from tests.support.refusals import REFUSED, one_line
from tllib_ancon.certificate.answers import ANOTHER, CANNOT_TELL, read_answers
from tllib_ancon.certificate.session import Comparison, Session
from tllib_ancon.runtime.errors import UserError

NAMES = ["a.jpg", "b, 2.jpg", "c.jpg", "é.jpg", "c.jpg"]
FIVE = Comparison([0, 1, 2, 3, 0], [0, 2, 3, 0, 1], NAMES, CLASSES)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.json"


@pytest.mark.parametrize("images", [0, 1200])
def test_equal_predictions_leave_nothing_to_certify(images):
    with one_line(rf"nothing to certify: .* equal on all {images:,} images"):
        comparison(images, 0)


def read(folder, text, models=FIVE, encoding="utf-8"):
    file = folder / "answers.csv"
    file.write_text(text, encoding=encoding)
    return read_answers(file, models.names, models.classes, ".")


@pytest.mark.parametrize(
    ("text", "models", "expected"),
    [
        ('"b, 2.jpg",mug\n\né.jpg, cannot tell\r\n', FIVE, {1: 1, 3: CANNOT_TELL}),
        ("c.jpg,another\n", FIVE, {2: ANOTHER, 4: ANOTHER}),
        ('path,class\né.jpg,\nc.jpg, \n"b, 2.jpg",pen\n', FIVE, {1: 2}),
        ("\ufeffPath, Class\né.jpg, 3 \n", FIVE, {3: 3}),
        ("a,3\nb,another\n", Comparison([0, 0], [1, 1], ["a", "b"], ["3", "another"]), {0: 0, 1: 1}),
    ],
)
def test_a_file_of_answers(tmp_path, text, models, expected):
    """The name of a class comes before its number, and before a word."""
    assert read(tmp_path, text, models) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [*REFUSED["answers"], ("c.jpg,pen\n./c.jpg,mug\n", "line 2: a second answer for ")],
)
def test_bad_answers_name_their_line(tmp_path, text, message):
    encoding = "latin-1" if "\xff" in text else "utf-8"
    with pytest.raises(UserError) as error:
        read(tmp_path, text.replace("DIGITS", "9" * 5000), encoding=encoding)
    assert str(error.value).startswith(str(tmp_path / "answers.csv"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_images": 99}, "begun with `predictions` "),
        ({"delta": 0.1}, "begun with `delta` 0.05, not 0.1"),
        ({"seed": 1}, "begun with `seed` 0, not 1"),
    ],
)
def test_a_file_of_another_session_is_refused_and_kept(path, changes, message):
    Session(comparison(), log=path)
    content = path.read_bytes()
    models = comparison(changes.pop("num_images", 100))
    with one_line(message):
        Session(models, log=path, **changes)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("]", "", "cannot be read as JSON"),
        ('"answers"', '"replies"', "cannot be read as answers"),
        ('"answer": 3', '"answer": 7', "an answer must be a class from 0 to 3"),
        ("amazon", "dslr", "is not the question at this place"),
    ],
)
def test_a_damaged_file_is_one_line_and_stays(path, before, after, message):
    session = Session(comparison(), log=path)
    for answer in (3, ANOTHER):
        session.answer(answer)
    path.write_text(path.read_text().replace(before, after))
    content = path.read_bytes()
    with one_line(message):
        Session(comparison(), log=path)
    assert path.read_bytes() == content


def test_a_full_disk_leaves_the_answers_before(path, monkeypatch):
    session = Session(comparison(), log=path)
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk_is_full)
        with one_line(r"No space left on device.*its content before stays"):
            session.answer(1)
    assert path.read_bytes() == content
    assert session.answers == []
    session.answer(2)
    assert Session(comparison(), log=path).answers == [2]
    with one_line("could not be written"):
        Session(comparison(), log=path.parent / "missing" / "answers.json")


def test_every_disagreement_is_asked_once_in_an_order_of_the_seed():
    models = comparison()
    questions = list(map(Session(models).asked, range(60)))
    positions = [question.position for question in questions]
    assert sorted(positions) == models.disagreements.tolist() != positions
    assert questions == list(map(Session(models).asked, range(60)))
    assert questions != list(map(Session(models, seed=1).asked, range(60)))


@settings(max_examples=15)
@given(st.lists(st.sampled_from([0, 1, 2, 3, ANOTHER, CANNOT_TELL, "undo"]), max_size=15), st.integers(0, 10))
def test_a_session_that_is_restarted_after_every_answer_is_the_same(tmp_path_factory, actions, seed):
    """Against a list on which "undo" pops."""
    log = tmp_path_factory.mktemp("session") / "answers.json"
    models = comparison(400, 300)
    given_answers = []
    for action in actions:
        session = Session(models, seed=seed, log=log)
        if session.test.settled:
            break
        if action != "undo":
            session.answer(action)
            given_answers.append(action)
        elif given_answers:
            session.undo()
            given_answers.pop()
        else:
            with one_line("no answer can be taken back"):
                session.undo()
    restarted = Session(models, seed=seed, log=log)
    in_one_go = Session(models, seed=seed)
    for answer in given_answers:
        in_one_go.answer(answer)
    assert restarted.answers == given_answers
    assert restarted.test.outcomes == in_one_go.test.outcomes
    assert getattr(restarted.question, "position", None) == getattr(in_one_go.question, "position", None)


def test_answers_after_a_gap_are_not_used(path):
    """Which images are labelled may not depend on what their labels are; answers may grow, but not change."""
    models = comparison()
    session = Session(models, log=path)
    labels = answers(models)
    gap = session.asked(3)
    before_the_gap = {position: label for position, label in labels.items() if position != gap.position}
    assert session.answer_all(before_the_gap) == 3
    assert session.question == gap
    session = Session(models, log=path)
    position, name, _ = session.asked(0)
    before = CLASSES[labels[position]]
    with one_line(f"two answers for '{name}': '{before}' before, now 'another'"):
        session.answer_all({**labels, position: ANOTHER})
    assert session.answer_all(labels) > 4
    assert session.test.verdict == "better"


def test_answers_that_name_no_class_count_for_neither_model():
    session = Session(comparison(400, 300))
    for answer in (CANNOT_TELL, CANNOT_TELL, ANOTHER):
        session.answer(answer)
    answer_as_adapted(session)
    certificate = session.certificate
    assert certificate["cannot_tell"] == 2
    assert certificate["another"] == 1
    assert certificate["verdict"] == "better"
    assert certificate["labels"] == 3 + certificate["adapted_right"]
    assert session.words[0].startswith("certified better: ")
