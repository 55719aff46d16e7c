from __future__ import annotations

import builtins
import io
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.certify.examples import CLASSES, comparison
from tests.certify.serving import Visitor, picture, served
from tllib_ancon.certify.answers import ANOTHER, CANNOT_TELL
from tllib_ancon.certify.comparison import Comparison
from tllib_ancon.certify.page import serve
from tllib_ancon.certify.session import Session
from tllib_ancon.errors import UserError


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(comparison(), log=tmp_path / "answers.jsonl")


@pytest.fixture
def page(session: Session) -> Iterator[Visitor]:
    with served(session) as visitor:
        yield visitor


def test_the_address_is_of_this_machine_with_a_token_of_its_own(page: Visitor) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", page.address)
    with served(Session(comparison())) as other:
        assert other.parts.path != page.parts.path


def test_it_listens_on_127_0_0_1_alone(page: Visitor) -> None:
    port = page.parts.port
    for address in {socket.gethostbyname(socket.gethostname()), "127.0.0.2"} - {"127.0.0.1"}:
        with pytest.raises(OSError, match=r"refused|unreachable"):
            socket.create_connection((address, port), timeout=5)


@pytest.mark.parametrize("path", ["/", "/state", "/image/0", "/page.js", "/wrong/", "/wrong/state", "//state", "/%00/"])
def test_nothing_without_the_token(page: Visitor, path: str) -> None:
    response, content = page.get(path)
    assert response.status == 403
    assert content == b"open the address that the command printed: it ends in a token"


def test_no_answer_without_the_token(page: Visitor, session: Session) -> None:
    response, _ = page.get("/answer", method="POST")
    assert response.status == 403
    response, _ = page.get(page.parts.path[:-2] + "/answer", method="POST")
    assert response.status == 403
    assert session.answers == ()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "0.0.0.0"])
def test_another_host_is_refused(page: Visitor, host: str) -> None:
    response, content = page.get("state", headers={"Host": host})
    assert response.status == 400
    assert b"options" not in content


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9000"])
def test_hosts_of_this_machine_and_of_a_forwarded_port(page: Visitor, host: str) -> None:
    assert page.get("state", headers={"Host": host})[0].status == 200


@pytest.mark.parametrize("path", ["", "page.css", "page.js", "state", "image/0"])
def test_every_answer_forbids_other_sources(page: Visitor, path: str) -> None:
    response, _ = page.get(path)
    assert response.status == 200
    assert "default-src 'none'" in (response.getheader("content-security-policy") or "")
    assert "script-src 'self'" in (response.getheader("content-security-policy") or "")
    assert response.getheader("x-content-type-options") == "nosniff"
    assert response.getheader("referrer-policy") == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "server.py",
        "page.html",
        "../session.py",
        "%2e%2e/session.py",
        "image/..%2f..%2fetc%2fpasswd",
        "image/-1",
        "image/60",
        "image/99999999999999999999",
        "image/0.0",
        "image/",
        "image/amazon/000.jpg",
        "answers.jsonl",
        "answer",
    ],
)
def test_nothing_else_of_the_disk(page: Visitor, path: str) -> None:
    response, _ = page.get(path)
    assert response.status in (403, 404, 405)


def test_the_images_are_those_in_question(session: Session) -> None:
    read: list[int] = []

    def recorded(position: int) -> Image.Image:
        read.append(position)
        return picture(position)

    with served(session, recorded) as page:
        assert all(page.get(f"image/{number}")[0].status == 200 for number in range(60))
    assert sorted(read) == session.comparison.disagreements.tolist()


def test_an_image_is_upright_small_and_without_metadata(session: Session) -> None:
    original = Image.new("RGB", (3000, 1000), (200, 10, 10))
    exif = original.getexif()
    exif[0x0112] = 6  # to be turned by a quarter
    exif[0x010E] = "mug"
    content = io.BytesIO()
    original.save(content, "JPEG", exif=exif)
    with served(session, lambda position: Image.open(io.BytesIO(content.getvalue()))) as page:
        response, sent = page.get("image/0")
    assert response.getheader("content-type") == "image/jpeg"
    image = Image.open(io.BytesIO(sent))
    assert image.size == (533, 1600)
    assert not image.getexif()
    assert b"mug" not in sent


@pytest.mark.parametrize("mode", ["L", "1", "RGBA", "P", "I;16", "F"])
def test_images_of_any_kind(session: Session, mode: str) -> None:
    with served(session, lambda position: Image.new(mode, (5, 4))) as page:
        assert page.get("image/0")[0].status == 200


def test_files_are_read_by_their_names(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (250, 0, 0)).save(tmp_path / "a.png")
    names = [str(tmp_path / "a.png"), str(tmp_path / "missing.png")]
    session = Session(Comparison(np.array([0, 0]), np.array([1, 2]), names, CLASSES))
    number = [session.asked(0).name, session.asked(1).name].index(names[0])
    with served(session, None) as page:  # type: ignore[arg-type]
        assert page.get(f"image/{number}")[0].status == 200
        response, _ = page.get(f"image/{1 - number}")
        assert response.status == 404


def test_the_state_tells_the_question_and_no_name_of_an_image(page: Visitor, session: Session) -> None:
    state = page.state()
    question = session.question
    assert question is not None
    assert [option["answer"] for option in state["options"]] == [*question.options, ANOTHER, CANNOT_TELL]
    assert [option["text"] for option in state["options"][:2]] == [CLASSES[number] for number in question.options]
    assert (state["answered"], state["total"], state["images"], state["last"]) == (0, 60, 100, None)
    assert state["curves"] == {"better": [0], "worse": [0]}
    assert "amazon" not in page.get("state")[1].decode()


def test_answers_undo_and_a_session_that_goes_on(page: Visitor, session: Session, tmp_path: Path) -> None:
    first = session.asked(0).options[0]
    status, state = page.post("answer", {"answered": 0, "answer": first})
    assert (status, state["answered"], state["last"]) == (200, 1, CLASSES[first])
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2
    assert page.post("answer", {"answered": 1, "answer": CANNOT_TELL})[1]["last"] == CANNOT_TELL
    status, state = page.post("undo", {"answered": 2})
    assert (status, state["answered"]) == (200, 1)
    assert len(state["curves"]["better"]) == 2
    assert Session(session.comparison, log=tmp_path / "answers.jsonl").answers == (first,)


@pytest.mark.parametrize("path", ["answer", "undo"])
def test_a_click_from_another_state_changes_nothing(page: Visitor, session: Session, path: str) -> None:
    session.answer(ANOTHER)
    for seen in (0, 2, None, "1"):
        status, state = page.post(path, {"answered": seen, "answer": ANOTHER})
        assert (status, state["error"], state["answered"]) == (409, "this was answered in another window", 1)
    assert session.answers == (ANOTHER,)


@pytest.mark.parametrize("body", [None, 3, [], {}, {"answer": 0}, "answered"])
def test_what_is_no_request(page: Visitor, session: Session, body: Any) -> None:
    assert page.post("answer", body)[0] == 400
    response, _ = page.get("answer", method="POST")
    assert response.status == 400
    assert session.answers == ()


@pytest.mark.parametrize("answer", [4, -1, "mug", None, [1], {"a": 1}, 0.5, True])
def test_an_answer_that_is_none_is_said_in_one_line(page: Visitor, session: Session, answer: Any) -> None:
    status, state = page.post("answer", {"answered": 0, "answer": answer})
    assert status == 422
    assert "an answer is a class from 0 to 3" in state["error"]
    assert session.answers == ()


def test_an_answer_that_could_not_be_saved_is_not_taken(
    page: Visitor, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    status, state = page.post("answer", {"answered": 0, "answer": ANOTHER})
    assert status == 422
    assert "No space left" in state["error"]
    assert state["answered"] == 0


def test_the_end_of_a_session_is_shown_in_words_and_can_be_undone(page: Visitor, session: Session) -> None:
    while session.question is not None:
        position = session.question.position
        page.post("answer", {"answered": len(session.answers), "answer": int(session.comparison.adapted[position])})
    state = page.state()
    assert (state["verdict"], state["options"]) == ("better", [])
    assert state["words"][0].startswith("certified better: the adapted model's accuracy minus the start's is between +")
    assert state["curves"]["better"][-1] >= state["decides"]
    answered = state["answered"]
    assert page.post("answer", {"answered": answered, "answer": ANOTHER})[0] == 422
    assert page.post("undo", {"answered": answered})[1]["verdict"] == "undecided"


def test_certainty_has_a_number_in_json() -> None:
    session = Session(comparison(20, 3))
    with served(session) as page:
        while session.question is not None:
            position = session.question.position
            page.post("answer", {"answered": len(session.answers), "answer": int(session.comparison.adapted[position])})
        assert page.state()["curves"]["better"][-1] == 9


def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} of 127.0.0.1 cannot be used \(address already in use\)"):
            serve(Session(comparison()), port=port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none(port: int) -> None:
    with pytest.raises(UserError, match="`port` lies between 0 and 65535"):
        serve(Session(comparison()), port=port)


def test_without_the_framework_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "uvicorn":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r"pip install 'tllib-ancon\[page\]'"):
        serve(Session(comparison()))


LABELLING = """
import sys
from pathlib import Path
from tests.certify.examples import comparison
from tllib_ancon.certify.page import serve
from tllib_ancon.certify.session import Session

session = Session(comparison(), log=Path(sys.argv[1]))
serve(session, port=0, say=lambda address: print(address, flush=True))
print("answers:", len(session.answers))
"""


def answer_once_and_end(log: Path, ending: signal.Signals) -> tuple[int, str]:
    """Serves in a process of its own, answers one question and sends it a signal; its exit status and last words."""
    command = [sys.executable, "-c", LABELLING, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = Visitor(process.stdout.readline().strip())
        assert page.post("answer", {"answered": 0, "answer": ANOTHER})[0] == 200
        process.send_signal(ending)
        rest, _ = process.communicate(timeout=20)
    return process.returncode, rest


def test_control_c_ends_it_and_the_answers_are_kept(tmp_path: Path) -> None:
    assert answer_once_and_end(tmp_path / "answers.jsonl", signal.SIGINT) == (0, "answers: 1\n")
    assert Session(comparison(), log=tmp_path / "answers.jsonl").answers == (ANOTHER,)


def test_a_kill_keeps_every_answer_that_was_acknowledged(tmp_path: Path) -> None:
    assert answer_once_and_end(tmp_path / "answers.jsonl", signal.SIGKILL) == (-signal.SIGKILL, "")
    assert Session(comparison(), log=tmp_path / "answers.jsonl").answers == (ANOTHER,)
