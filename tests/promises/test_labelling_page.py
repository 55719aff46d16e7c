"""The labelling page: who may see it, what it shows and takes, and that every answer it acknowledged is kept."""

import json
import multiprocessing
import os
import re
import signal
import socket

import pytest

from tests.support.certificates import comparison, disk_is_full
from tests.support.refusals import one_line
from tests.support.serving import Visitor, served
from tllib_ancon.certificate.answers import ANOTHER
from tllib_ancon.certificate.page import serve
from tllib_ancon.certificate.session import Session


@pytest.fixture
def page(session):
    with served(session) as visitor:
        yield visitor


def header(response, name):
    return response.getheader(name) or ""


# Who may see it


def test_it_listens_on_this_machine_alone(page):
    """A server that listened on every address would answer on 127.0.0.2, too."""
    assert page.parts.hostname == "127.0.0.1"
    with pytest.raises(OSError):  # noqa: PT011 (which one depends on the system)
        socket.create_connection(("127.0.0.2", page.parts.port), timeout=5)


def test_nothing_without_the_token(page, session):
    for path in ["/", "/state", "/image/0", "/page.js", "/wrong/", "/wrong/state", "//state", "/%00/"]:
        forbidden(page, "GET", path)
    forbidden(page, "POST", "/answer")
    forbidden(page, "POST", page.parts.path[:-2] + "/answer")
    assert session.answers == []


def forbidden(page, method, path):
    response, content = page.get(path, method=method)
    assert response.status == 403
    assert content == b"open the address that the command printed: it ends in a token"
    assert "default-src 'none'" in header(response, "content-security-policy")


STRANGERS = ("evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "0.0.0.0")
FORWARDED = ("127.0.0.1", "localhost", "localhost:9000")


@pytest.mark.parametrize("host", [*STRANGERS, *FORWARDED])
def test_another_host_is_refused(page, host):
    response, content = page.get("state", headers={"Host": host})
    assert response.status == (200 if host in FORWARDED else 400)
    assert (b"options" in content) == (host in FORWARDED)


def test_it_serves_the_page_alone_and_forbids_other_sources(page):
    for path in ("", "page.css", "page.js", "state", "image/0"):
        response, _ = page.get(path)
        assert response.status == 200
        for source in ("default-src 'none'", "script-src 'self'"):
            assert header(response, "content-security-policy").count(source) == 1
        named = [header(response, name) for name in ("x-content-type-options", "referrer-policy", "server")]
        assert named == ["nosniff", "no-referrer", ""]
    files = ["server.py", "page.py", "page.html", "../session.py", "%2e%2e/session.py", "answers.json", "answer"]
    images = ["..%2f..%2fetc%2fpasswd", "-1", "60", "99999999999999999999", "0.0", "", "amazon/000.jpg"]
    for path in [*files, *(f"image/{name}" for name in images)]:
        assert page.get(path)[0].status in (403, 404, 405), path


# Questions and answers


def test_an_answer_that_cannot_be_saved_is_said_in_one_line_and_not_taken(page, session, monkeypatch):
    monkeypatch.setattr("os.fsync", disk_is_full)
    status, state = page.post("answer", {"answered": 0, "answer": ANOTHER})
    assert status == 422
    assert "No space left" in state["error"]
    assert state["answered"] == 0
    assert session.answers == []


def test_until_the_verdict_a_user_is_told_the_count_alone(page, session):
    """Whoever sees the evidence move learns which model said what, and can answer towards one of them."""
    models = session.comparison
    _, state = page.post("answer", {"answered": 0, "answer": ANOTHER})
    status, state = page.post("answer", {"answered": 0, "answer": ANOTHER})
    assert status == 409
    assert state["error"] == "this was answered in another window"
    _, state = page.post("undo", {"answered": 1})
    assert state["answered"] == 0
    while session.question is not None:
        state = page.state()
        number = len(session.answers)
        assert state.keys() == {"answered", "image", "total", "options", "last"}
        told = {float(found) for found in re.findall(r"(?<=[ \[])-?\d[\d.]*(?=[,\]}])", json.dumps(state))}
        assert told == {number, 60, *session.question.options}
        label = int(models.adapted[session.question.position])
        _, state = page.post("answer", {"answered": number, "answer": label})
    assert state["verdict"] == "better"
    assert state["options"] == []
    assert state["words"][0].startswith("certified better: the adapted model's accuracy minus the source model's is")
    assert page.post("answer", {"answered": len(session.answers), "answer": ANOTHER})[0] == 422


# How it begins and ends


def test_a_port_in_use_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with one_line(rf"port {port} of 127.0.0.1 cannot be used \(address already in use\)"):
            serve(Session(comparison()), port=port)


def label(log, said):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where this was begun in the background
    session = Session(comparison(), log=log)
    serve(session, port=0, say=said.send)
    said.send(session.answers)


@pytest.mark.parametrize(("ending", "status"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_control_c_or_a_kill_keeps_every_answer_that_was_acknowledged(tmp_path, ending, status):
    log = tmp_path / "answers.json"
    said, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=label, args=(log, there))
    process.start()
    visitor = Visitor(said.recv())
    status_of_answer, _ = visitor.post("answer", {"answered": 0, "answer": ANOTHER})
    assert status_of_answer == 200
    os.kill(process.pid, ending)
    process.join()
    assert process.exitcode == status
    assert said.poll() == (status == 0)
    assert Session(comparison(), log=log).answers == [ANOTHER]
