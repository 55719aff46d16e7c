from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.certify.examples import CLASSES
from tllib_ancon.certify.answers import (
    ANOTHER,
    CANNOT_TELL,
    answers_of_labels,
    checked_answer,
    outcome,
    parse_answer,
    read_answers,
)
from tllib_ancon.certify.comparison import Comparison
from tllib_ancon.errors import UserError

MODELS = Comparison(
    np.array([0, 1, 2, 3, 0]), np.array([0, 2, 3, 0, 1]), ["a.jpg", "b, 2.jpg", "c.jpg", "é.jpg", "c.jpg"], CLASSES
)


def written(path: Path, text: str) -> Path:
    file = path / "answers.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_outcomes() -> None:
    assert [outcome(answer, adapted=2, start=0) for answer in (2, 0, 1, ANOTHER, CANNOT_TELL)] == [1, -1, 0, 0, 0]


@pytest.mark.parametrize("header", ["", "path,class\n", "\ufeffPath, Class\n"])
def test_a_file_of_answers(tmp_path: Path, header: str) -> None:
    file = written(tmp_path, header + '"b, 2.jpg",mug\n\né.jpg, cannot tell\r\nc.jpg,another\n')
    assert read_answers(file, MODELS) == {1: 1, 3: CANNOT_TELL, 2: ANOTHER, 4: ANOTHER}


def test_an_empty_class_is_no_answer_yet(tmp_path: Path) -> None:
    assert read_answers(written(tmp_path, 'path,class\né.jpg,\nc.jpg, \n"b, 2.jpg",pen\n'), MODELS) == {1: 2}


def test_a_class_may_be_a_number_and_a_name_comes_first() -> None:
    assert parse_answer(" 3 ", CLASSES) == 3
    assert parse_answer("3", ["3", "2", "1", "0"]) == 0
    assert parse_answer("another", ["some", "another"]) == 1
    assert parse_answer("cannot tell", CLASSES) == CANNOT_TELL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg,mug", "line 1: 'a.jpg' is not in question: both models say the same class"),
        ("path,class\nz.jpg,mug", "line 2: 'z.jpg' is none of the 5 images"),
        ("é.jpg,mug\nc.jpg,pen\né.jpg,mug", "line 3: a second answer for 'é.jpg'; the first is in line 1"),
        ("é.jpg,mgu", "line 1: unknown class 'mgu'; did you mean 'mug'?"),
        ("é.jpg,4", "line 1: unknown class '4'"),
        ("é.jpg,-1", "line 1: unknown class '-1'"),
        ("é.jpg", "line 1: expected a path and a class, got 1 columns"),
        ("é.jpg,mug,pen", "got 3 columns"),
    ],
)
def test_bad_answers_name_their_line(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UserError) as error:
        read_answers(file, MODELS)
    assert str(error.value).startswith(str(file))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    for content in (b"\xff\xfe\x00", None):
        if content is not None:
            file.write_bytes(content)
        else:
            file.unlink()
        with pytest.raises(UserError, match="cannot be read as answers"):
            read_answers(file, MODELS)


def test_labels_answer_what_is_in_question_where_there_are_any() -> None:
    assert answers_of_labels(np.array([0, 1, -1, 3, 2]), MODELS) == {1: 1, 3: 3, 4: 2}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "one for each of 5"),
        ([0, 1, 2, 3, 4], "from -1"),
        ([0.0] * 5, "from -1"),
        ([-2, 0, 0, 0, 0], "from -1"),
    ],
)
def test_labels_that_do_not_fit(labels: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        answers_of_labels(np.array(labels), MODELS)


@pytest.mark.parametrize("answer", [4, -1, True, 1.0, "mug", "Another", None])
def test_what_is_no_answer(answer: object) -> None:
    with pytest.raises(UserError, match="an answer is a class from 0 to 3"):
        checked_answer(answer, 4)
