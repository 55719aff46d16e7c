"""A refusal is one line that says what is wrong, where, and what to do."""

from contextlib import contextmanager

import pytest

from tllib_ancon.runtime.errors import UserError


@contextmanager
def refused(message, **places):
    """The body must raise a UserError with this message, in which the name of a place stands for its path."""
    with pytest.raises(UserError) as error:
        yield
    text = str(error.value)
    for name, path in places.items():
        text = text.replace(str(path), name)
    assert text == message


@contextmanager
def one_line(pattern):
    """The body must raise a UserError of one line, in which the pattern is found."""
    with pytest.raises(UserError, match=pattern) as error:
        yield error
    assert "\n" not in str(error.value)
