from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tllib_ancon.certify.answer_log import AnswerLog
from tllib_ancon.errors import UserError

HEADER = {"predictions": "abc", "seed": 0, "delta": 0.05, "margin": 0.0}


def test_entries_are_on_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (flushed.append(1), fsync(descriptor)))
    log = AnswerLog(tmp_path / "answers.jsonl", HEADER)
    before = len(flushed)
    log.append({"image": "é.jpg", "answer": 3})
    assert len(flushed) > before
    lines = (tmp_path / "answers.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [HEADER, {"image": "é.jpg", "answer": 3}]
    assert AnswerLog(tmp_path / "answers.jsonl", HEADER).entries == [{"image": "é.jpg", "answer": 3}]


@pytest.mark.parametrize("cut", range(1, 31))
def test_a_line_that_was_cut_off_is_removed_and_the_log_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerLog(path, HEADER).append({"image": "a.jpg", "answer": 3})
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    log = AnswerLog(path, HEADER)
    assert log.entries == []
    log.append({"image": "a.jpg", "answer": 3})
    assert path.read_bytes() == whole


def test_a_header_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b'{"predictions": "a')
    AnswerLog(path, HEADER)
    assert json.loads(path.read_text()) == HEADER


def test_names_that_are_no_utf8_come_back(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerLog(path, HEADER).append({"image": "caf\udce9.jpg", "answer": 3})
    assert AnswerLog(path, HEADER).entries[0]["image"] == "caf\udce9.jpg"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"predictions": "xyz"}, "about other predictions"),
        ({"delta": 0.1}, "begun with `delta` 0.05, not 0.1"),
        ({"margin": 0.01}, "begun with `margin` 0.0, not 0.01"),
        ({"seed": 1}, "begun with `seed` 0, not 1"),
    ],
)
def test_a_file_of_another_session_is_refused_and_kept(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerLog(path, HEADER)
    content = path.read_bytes()
    with pytest.raises(UserError, match=message):
        AnswerLog(path, {**HEADER, **changed})
    assert path.read_bytes() == content


@pytest.mark.parametrize(("line", "message"), [("{", "line 2: damaged"), ("[1]", "line 2: not an answer")])
def test_a_damaged_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(HEADER) + "\n" + line + "\n")
    with pytest.raises(UserError, match=message):
        AnswerLog(path, HEADER)


def test_a_full_disk_leaves_the_answers_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers.jsonl"
    log = AnswerLog(path, HEADER)
    content = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=r"No space left on device.*the answers before are kept"):
            log.append({"image": "a.jpg", "answer": 3})
    assert path.read_bytes() == content
    assert log.entries == []


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="could not be written"):
        AnswerLog(tmp_path / "missing" / "answers.jsonl", HEADER)
