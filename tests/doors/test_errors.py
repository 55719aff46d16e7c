"""Bad input of each kind: one line that names the flag or the file and, of a name, the nearest valid one."""

import json

import pytest

from tests.doors.world import FILES, World, command

REFUSED = json.loads((FILES / "refused.json").read_text())
"""Words of a command -> what its message says, among other words."""


@pytest.mark.parametrize("line", REFUSED)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(line: str, world: World) -> None:
    words = world.words(line)
    if words[:1] in (["adapt"], ["pretrain"]):
        words[1:1] = world.images
    before = {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()}
    with world.own_folder():
        said = command(*words)
    assert said.status == 2
    assert said.out.getvalue() == ""
    (message,) = said.err.getvalue().splitlines()
    assert message.startswith("tllib-ancon: error: ")
    assert [word for word in REFUSED[line] if word not in message] == [], message
    assert {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()} == before
