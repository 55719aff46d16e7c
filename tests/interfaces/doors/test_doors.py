"""What a person sees of every command and of the Python contract is what was recorded."""

import pytest

from tests.interfaces.doors.commands import SCENES
from tests.interfaces.doors.record import path, told
from tests.interfaces.doors.telling import differences


@pytest.mark.parametrize("name", SCENES)
def test_the_package_does_what_it_did(name, world):
    found = differences(path(name).read_text().splitlines(), told(name, world))
    assert not found, (
        "\n".join(found[:40]) + "\nif this is meant: python -m tests.interfaces.doors.record, and read the diff"
    )
