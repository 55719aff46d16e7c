"""A session of questions: every answer is on disk, another session's file is refused, and the verdict is the test's."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.certificates import CLASSES, answer_as_adapted, answers, comparison, disk_is_full
from tests.support.json_files import read_json
from tests.support.refusals import REFUSED, one_line
from tllib_ancon.certificate.answer_log import AnswerLog
from tllib_ancon.certificate.answers import ANOTHER, CANNOT_TELL, opaque, read_answers
from tllib_ancon.certificate.session import Comparison, Session, in_words
from tllib_ancon.runtime.errors import UserError

HEADER = {"predictions": "abc", "seed": 0, "delta": 0.05, "margin": 0.0, "side": "both"}
ENTRY = {"image": "a.jpg", "answer": 3}
NAMES = ["a.jpg", "b, 2.jpg", "c.jpg", "é.jpg", "c.jpg"]
FIVE = Comparison([0, 1, 2, 3, 0], [0, 2, 3, 0, 1], NAMES, CLASSES)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.jsonl"


# Predictions of both models


@pytest.mark.parametrize("images", [0, 1200])
def test_equal_predictions_leave_nothing_to_certify(images):
    with one_line(rf"nothing to certify: .* equal on all {images:,} images"):
        comparison(images, 0)


# Answers in a file


def read(folder, text, models=FIVE, encoding="utf-8"):
    file = folder / "answers.csv"
    file.write_text(text, encoding=encoding)
    return read_answers(file, models.names, models.classes, None, models.disagreements)


@pytest.mark.parametrize(
    ("text", "models", "expected"),
    [
        ('"b, 2.jpg",mug\n\né.jpg, cannot tell\r\n', FIVE, {1: 1, 3: CANNOT_TELL}),
        ("c.jpg,another\n", FIVE, {2: ANOTHER, 4: ANOTHER}),
        ('path,class\né.jpg,\nc.jpg, \n"b, 2.jpg",pen\n', FIVE, {1: 2}),
        ("\ufeffPath, Class\né.jpg, 3 \n", FIVE, {3: 3}),
        ("a,3\nb,another\n", Comparison([0, 0], [1, 1], ["a", "b"], ["3", "another"]), {0: 0, 1: 1}),
        (f"questions-images/000001-{opaque('b, 2.jpg')},pen\n{opaque('c.jpg')},mug\n", FIVE, {1: 2, 2: 1, 4: 1}),
    ],
)
def test_a_file_of_answers(tmp_path, text, models, expected):
    """The name of a class comes before its number, and before a word. A copy of an image without a telling name counts
    as the image."""
    assert read(tmp_path, text, models) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [*REFUSED["answers"], (f"c.jpg,pen\n1-{opaque('c.jpg')},mug\n", "line 2: a second answer for ")],
)
def test_bad_answers_name_their_line(tmp_path, text, message):
    encoding = "latin-1" if "\xff" in text else "utf-8"
    with pytest.raises(UserError) as error:
        read(tmp_path, text.replace("DIGITS", "9" * 5000), encoding=encoding)
    assert str(error.value).startswith(str(tmp_path / "answers.csv"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# Answers on disk


@pytest.mark.parametrize("cut", [2, 3, 20, 53])
def test_a_line_that_was_cut_off_is_left_out_and_the_log_goes_on(path, cut):
    AnswerLog(path, HEADER).append(ENTRY)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    log = AnswerLog(path, HEADER)
    assert log.entries == []
    log.append(ENTRY)
    assert path.read_bytes() == whole
    path.write_bytes(b'{"predictions": "a')
    AnswerLog(path, HEADER)
    assert HEADER.items() < read_json(path).items()


def test_no_flipped_bit_and_no_lost_newline_costs_an_answer(path):
    header = {"predictions": "abc"}
    entry = {"image": "a", "answer": 3}
    AnswerLog(path, header).append(entry)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with one_line(r"line [12], cannot be read"):
            AnswerLog(path, header)
        assert path.read_bytes() == damaged
    path.write_bytes(whole[:-1])
    assert AnswerLog(path, header).entries == [entry]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("predictions", "xyz", "begun with `predictions` abc"),
        ("delta", 0.1, "begun with `delta` 0.05, not 0.1"),
        ("margin", 0.01, "begun with `margin` 0.0, not 0.01"),
        ("side", "better", "begun with `side` both, not better"),
        ("seed", 1, "begun with `seed` 0, not 1"),
    ],
)
def test_a_file_of_another_session_is_refused_and_kept(path, name, value, message):
    AnswerLog(path, HEADER)
    content = path.read_bytes()
    with one_line(message):
        AnswerLog(path, {**HEADER, name: value})
    assert path.read_bytes() == content


def test_a_full_disk_leaves_the_answers_before(path, monkeypatch):
    log = AnswerLog(path, HEADER)
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk_is_full)
        with one_line(r"No space left on device.*its content before stays"):
            log.append({"image": "b.jpg", "answer": 1})
    assert path.read_bytes() == content
    log.append(ENTRY)
    assert AnswerLog(path, HEADER).entries == [ENTRY]
    with one_line("could not be written"):
        AnswerLog(path.parent / "missing" / "answers.jsonl", HEADER)


# Questions


def test_every_disagreement_is_asked_once_in_an_order_of_the_seed():
    models = comparison()
    questions = list(map(Session(models).asked, range(60)))
    positions = [question.position for question in questions]
    assert sorted(positions) == models.disagreements.tolist() != positions
    assert questions == list(map(Session(models).asked, range(60)))
    assert questions != list(map(Session(models, seed=1).asked, range(60)))
    few = comparison(10, 4)
    firsts = [Session(few, seed=seed).asked(0).position for seed in range(400)]
    positions, counts = np.unique(firsts, return_counts=True)
    assert positions.tolist() == few.disagreements.tolist()
    assert min(counts) > 70


# Answers


@settings(max_examples=15)
@given(st.lists(st.sampled_from([0, 1, 2, 3, ANOTHER, CANNOT_TELL, "undo"]), max_size=15), st.integers(0, 10))
def test_a_session_that_is_restarted_after_every_answer_is_the_same(tmp_path_factory, actions, seed):
    """Against a list on which "undo" pops."""
    log = tmp_path_factory.mktemp("session") / "answers.jsonl"
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


def test_a_log_that_this_session_did_not_write_is_refused(path):
    models = comparison()
    session = Session(models, log=path)
    names = [session.asked(number).name for number in range(60)]
    header = read_json(path)
    del header["crc32"]
    answer_as_adapted(session)
    right = [{"image": name, "answer": ANOTHER} for name in names]
    certain = [{"image": name, "answer": answer} for name, answer in zip(names, session.answers, strict=False)]
    for entries, message in [
        ([{**right[0], "image": "x"}], "line 2: not the answer"),
        ([right[1]], "line 2: not the answer"),
        ([{"undo": names[0]}], "line 2: not the answer"),
        ([right[0], {"undo": "x"}], "line 3: not the answer"),
        ([right[0], right[1], {"undo": names[0]}], "line 4: not the answer"),
        ([*right, right[0]], "line 62: not the answer"),
        ([*certain, right[len(certain)]], f"line {len(certain) + 2}: not the answer"),
        ([{**right[0], "answer": "mug"}], "an answer must be a class"),
    ]:
        path.unlink()
        log = AnswerLog(path, header)
        for entry in entries:
            log.append(entry)
        with one_line(message):
            Session(models, log=path)


# The certificate


@pytest.mark.parametrize(
    ("images", "disagreements", "untold", "against"),
    [(400, 300, 5, "undecided"), (400, 300, 25, "worse"), (60, 10, 1, "better")],
)
def test_images_that_cannot_be_told_are_turned_against_the_verdict(images, disagreements, untold, against):
    session = Session(comparison(images, disagreements))
    for _ in range(untold):
        session.answer(CANNOT_TELL)
    session.answer(ANOTHER)
    answer_as_adapted(session)
    certificate = session.certificate
    assert certificate["cannot_tell"] == untold
    assert certificate["another"] == 1
    assert certificate["verdict"] == "better"
    assert certificate["verdict_if_cannot_tell_counts_against"] == against
    assert (certificate["e_better"] is None) == (against == "better")
    doubt = f"the verdict would be {against} if the {untold} images whose class nobody could tell counted against it"
    assert in_words(certificate)[1:] == ([doubt] if against != "better" else [])
