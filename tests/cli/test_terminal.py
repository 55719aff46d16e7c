"""Help on terminals that lack a character, and in pipes whose reader has gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tllib_ancon.cli import terminal
from tllib_ancon.cli.main import COMMANDS


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "ascii"])
@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help_is_shown_in_any_encoding(command: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with os.fdopen(read, encoding=encoding) as reader, os.fdopen(write, "w", encoding=encoding) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "argv", ["tllib-ancon", *command, "--help-all"])
        with pytest.raises(SystemExit) as end:
            terminal.command()
        stdout.close()
        text = reader.read()
    assert end.value.code == 0
    assert text.startswith("usage: tllib-ancon")
    if command == ["adapt"]:
        assert r"\u03b2" in text


def started(*words: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tllib_ancon", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def test_a_process_takes_the_encoding_of_its_terminal() -> None:
    out, errors = started("adapt", "--help-all", PYTHONIOENCODING="cp1252").communicate()
    assert rb"\u03b2" in out
    assert errors == b""


@pytest.mark.parametrize("words", [("export", "--help"), ("adapt", "--help-all"), ("--version",)])
def test_a_reader_that_has_gone_ends_the_command_without_a_word(words: tuple[str, ...]) -> None:
    process = started(*words)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() in (0, 141)


def test_another_broken_pipe_is_no_matter_of_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def broken() -> int:
        raise BrokenPipeError("of a worker")

    monkeypatch.setattr(terminal, "main", broken)
    with open(tmp_path / "out", "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(BrokenPipeError, match="of a worker"):
            terminal.command()
