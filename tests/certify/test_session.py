from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.examples import CLASSES, comparison, labels
from tllib_ancon.certification import DisagreementTest
from tllib_ancon.certify.answers import ANOTHER, CANNOT_TELL, Answer, answers_of_labels
from tllib_ancon.certify.comparison import Comparison
from tllib_ancon.certify.session import Session
from tllib_ancon.errors import UserError

answers = st.sampled_from([0, 1, 2, 3, ANOTHER, CANNOT_TELL])


def test_every_disagreement_is_asked_once_in_an_order_of_the_seed() -> None:
    models = comparison()
    session = Session(models)
    questions = [session.asked(number) for number in range(len(session))]
    assert sorted(question.position for question in questions) == models.disagreements.tolist()
    assert [question.position for question in questions] != models.disagreements.tolist()
    assert questions == [Session(models).asked(number) for number in range(60)]
    assert questions != [Session(models, seed=1).asked(number) for number in range(60)]
    assert session.upcoming(2) == [question.name for question in questions[:2]]
    assert len(session.upcoming(1000)) == 60
    session.answer(ANOTHER)
    assert session.upcoming(1) == [questions[1].name]


def test_the_order_is_uniform() -> None:
    models = comparison(10, 4)
    firsts = [Session(models, seed=seed).asked(0).position for seed in range(400)]
    assert set(firsts) == set(models.disagreements.tolist())
    assert min(np.unique(firsts, return_counts=True)[1]) > 70


def test_the_options_do_not_tell_which_model_said_which() -> None:
    session = Session(comparison(1000, 500))
    adapted_first = 0
    for number in range(500):
        question = session.asked(number)
        models = session.comparison
        assert set(question.options) == {models.start[question.position], models.adapted[question.position]}
        adapted_first += question.options[0] == models.adapted[question.position]
    assert 200 < adapted_first < 300


def test_a_session_ends_with_its_verdict() -> None:
    models = comparison()
    session = Session(models)
    known = answers_of_labels(labels(models), models)
    asked = session.answer_all(known)
    assert asked == len(session.answers) == len(session.test.outcomes)
    assert session.verdict == "better"
    assert session.settled
    assert session.question is None
    assert 8 <= asked < 40
    assert session.answer_all(known) == 0
    with pytest.raises(UserError, match="no question is open"):
        session.answer(0)


def test_outcomes_reach_the_test() -> None:
    session = Session(comparison())
    for option in ("adapted", "start", ANOTHER, CANNOT_TELL):
        question = session.question
        assert question is not None
        models = session.comparison
        answer: dict[str, Answer] = {
            "adapted": int(models.adapted[question.position]),
            "start": int(models.start[question.position]),
        }
        session.answer(answer.get(option, option))  # type: ignore[arg-type]
    assert session.test.outcomes == (1, -1, 0, 0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(answers, st.just("undo")), max_size=25), st.integers(0, 10))
def test_a_session_that_is_restarted_after_every_answer_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Answer], seed: int
) -> None:
    """Against a list on which "undo" pops."""
    log = tmp_path_factory.mktemp("session") / "answers.jsonl"
    models, kept = comparison(400, 300), []
    for action in actions:
        session = Session(models, seed=seed, log=log)
        if session.settled:
            break
        if action == "undo" and not kept:
            with pytest.raises(UserError, match="no answer to take back"):
                session.undo()
        elif action == "undo":
            session.undo()
            kept.pop()
        else:
            session.answer(action)
            kept.append(action)
    again = Session(models, seed=seed, log=log)
    assert list(again.answers) == kept
    fresh = Session(models, seed=seed)
    for answer in kept:
        fresh.answer(answer)
    assert fresh.test.outcomes == again.test.outcomes
    assert fresh.question == again.question


def test_the_last_answer_can_be_undone_after_the_verdict() -> None:
    models = comparison()
    session = Session(models)
    session.answer_all(answers_of_labels(labels(models, 1.0), models))
    assert session.verdict == "better"
    last = session.asked(len(session.answers) - 1)
    session.undo()
    assert session.verdict == "undecided"
    assert session.question == last


def test_answers_after_a_gap_are_not_used() -> None:
    """Which images are labelled may not depend on what their labels are."""
    models = comparison()
    session = Session(models)
    known = answers_of_labels(labels(models), models)
    del known[session.asked(3).position]
    assert session.answer_all(known) == 3
    assert session.question == session.asked(3)
    assert session.verdict == "undecided"


def test_answers_that_grow_go_on_and_may_not_change(tmp_path: Path) -> None:
    models, log = comparison(), tmp_path / "answers.jsonl"
    known = answers_of_labels(labels(models), models)
    session = Session(models, log=log)
    few = {session.asked(number).position: known[session.asked(number).position] for number in range(4)}
    assert session.answer_all(few) == 4
    session = Session(models, log=log)
    first = session.asked(0)
    changed = {**known, first.position: ANOTHER}
    with pytest.raises(
        UserError, match=f"two answers for '{first.name}': '{CLASSES[few[first.position]]}' before, now"
    ):
        session.answer_all(changed)
    assert session.answer_all(known) > 4
    assert session.verdict == "better"


def test_a_log_whose_lines_are_of_other_images_is_refused(tmp_path: Path) -> None:
    models, log = comparison(), tmp_path / "answers.jsonl"
    Session(models, log=log).answer(ANOTHER)
    lines = log.read_text().splitlines()
    log.write_text("\n".join([lines[0], lines[1].replace("amazon", "webcam"), ""]))
    with pytest.raises(UserError, match="line 2: not the answer"):
        Session(models, log=log)
    log.write_text("\n".join([lines[0], json.dumps({"undo": "x"}), ""]))
    with pytest.raises(UserError, match="line 2: not the answer"):
        Session(models, log=log)


def test_an_answer_that_is_none_is_not_kept(tmp_path: Path) -> None:
    log = tmp_path / "answers.jsonl"
    session = Session(comparison(), log=log)
    content = log.read_bytes()
    for wrong in (4, "mug", None):
        with pytest.raises(UserError, match="an answer is a class"):
            session.answer(wrong)  # type: ignore[arg-type]
    assert (log.read_bytes(), session.answers) == (content, ())


def test_the_settings_are_those_of_the_test() -> None:
    session = Session(comparison(200, 50), delta=0.2, margin=0.01)
    reference = DisagreementTest(0.2, 0.01, disagreements=50, images=200)
    assert session.test.interval == reference.interval
    assert session.test.threshold == 10
    with pytest.raises(UserError, match="`delta`"):
        Session(comparison(), delta=1)
    with pytest.raises(UserError, match="`margin`"):
        Session(comparison(), margin=-0.1)


def test_a_margin_beyond_the_disagreements_asks_nothing() -> None:
    session = Session(comparison(1000, 5), margin=0.01)
    assert session.settled
    assert session.question is None
    assert session.verdict == "undecided"


def test_all_labels_give_the_exact_difference() -> None:
    models = Comparison(np.zeros(10, dtype=int), np.array([1, 1, 2, 2] + [0] * 6), [f"{i}" for i in range(10)], CLASSES)
    session = Session(models)
    session.answer_all(answers_of_labels(np.array([1, 0, 2, 0] + [0] * 6), models))
    assert len(session.answers) == 4
    assert session.test.interval == (0, 0)
    assert session.settled
