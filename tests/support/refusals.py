"""A refusal is one line that says what is wrong, where, and what to do."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from tllib_ancon.runtime.errors import BadSetting, UserError

REFUSED = json.loads(Path(__file__).with_name("refused.json").read_text())
"""What is given where, and what the message about it says."""


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
    """The body must raise a UserError of one line, in which the pattern is found."""
    with pytest.raises(UserError, match=pattern) as error:
        yield error
    text = str(error.value)
    assert "\n" not in text
    assert error.value.setting in text
    assert error.value.setting or error.type is not BadSetting
