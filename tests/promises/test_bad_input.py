"""Bad images, models and outputs that a command meets are one line; bad words are in `interfaces`."""

import pytest

from tllib_ancon.cli.main import main
from tllib_ancon.runtime.errors import UserError


def test_a_bug_still_shows_its_traceback(monkeypatch):
    monkeypatch.setattr("tllib_ancon.cli.main.parse", lambda words: int("a bug of ours"))
    with pytest.raises(ValueError, match="a bug of ours"):
        main(["adapt"])


def test_an_error_of_many_lines_is_shown_in_one(monkeypatch, refused):
    def fail(words):
        raise UserError("x.pth cannot be read (first\n\n\tsecond)\n")

    monkeypatch.setattr("tllib_ancon.cli.main.parse", fail)
    assert refused(["adapt"]) == "tllib-ancon: error: x.pth cannot be read (first second)"
