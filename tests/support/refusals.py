"""A refusal is one line that says what is wrong, where, and what to do."""

import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from tllib_ancon.runtime.errors import BadSetting, UserError

REFUSED = json.loads(Path(__file__).with_name("refused.json").read_text())
"""What is given where, and what the message about it says."""
LINES = Path(__file__).with_name("refusals.txt").read_text().splitlines()
"""Each refusal that a test meets: its class, its setting, and its line as :func:`shape` leaves it."""
VARIABLE = {
    r"\((?:[^()]|\([^()]*\))*\)": "(...)",
    r"(?<!\w)'[^']*'": "'...'",
    r"\S*/\S*": "PATH",
    r"\d+": "N",
    r"\b(?:cpu|cuda:N)\b": "DEVICE",
    r"` cannot be .*": "` cannot be ...",
    r"ames: .*": "ames: ...",
}


@contextmanager
def refused(message, **places):
    """The body must raise a UserError whose message has this text; the name of a place stands for its path."""
    with one_line(None) as error:
        yield
    text = str(error.value)
    for name, path in places.items():
        text = text.replace(str(path), name)
    assert message in text


@contextmanager
def one_line(pattern):
    """The body must raise a UserError of one line, in which the pattern is found, and which stands in
    ``refusals.txt``."""
    with pytest.raises(UserError, match=pattern) as error:
        yield error
    text = str(error.value)
    assert "\n" not in text
    assert error.value.setting in text
    assert error.value.setting or error.type is not BadSetting
    assert f"{error.type.__name__} [{error.value.setting}] {shape(text)}" in LINES


def shape(text):
    """A line without what machines, libraries and numbers decide."""
    for pattern, word in VARIABLE.items():
        text = re.sub(pattern, word, text)
    return text
