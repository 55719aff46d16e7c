"""Bad input of each kind is one line that names the flag or the file, exit status 2, and nothing is written."""

import pytest

from tests.support.json_files import read_json
from tests.support.world import FILES, World, command

REFUSED = read_json(FILES / "commands.json")
"""Words of a command -> what its message says; what stands in a file in place of something right, and the same."""
BAD_PATHS = ("x" * 300, "loop", "loop/below")
LONG = {"NESTED": "[" * 5000, "DOTTED": ".".join("a" * 3000), "DIGITS": "9" * 5000, "HUGE": "9" * 400}
PLAN = """
title = "t"
dataset = "ImageList"
pairs = ["bright-dark"]
methods = ["ancon"]
# more
[source.erm]
epochs = 1
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


def refused(world, line, **files):
    """The message about a command that is given in a folder with these files."""
    words = world.words(line)
    before = contents(world.folder)
    with world.own_folder() as folder:
        for name in ("loop", "loop.toml"):
            (folder / name).symlink_to(name)
        for name, text in files.items():
            (folder / f"{name}.toml").write_bytes(filled(text).encode(errors="surrogateescape"))
        said = command(*words)
        written = {path.stem for path in folder.iterdir() if path.stem != "loop"}
    assert said.status == 2
    assert said.out.getvalue() == ""
    (message,) = said.err.getvalue().splitlines()
    assert message.startswith("tllib-ancon: error: ")
    assert len(message) < 1000
    assert written == files.keys()
    for name in files:
        (folder / f"{name}.toml").unlink()
    assert contents(world.folder) == before
    return message


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def filled(text):
    for name, long in LONG.items():
        text = text.replace(name, long)
    return text


@pytest.mark.parametrize("line", REFUSED["lines"])
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(line, world):
    message = refused(world, line)
    assert [word for word in REFUSED["lines"][line] if word not in message] == [], message


@pytest.mark.parametrize("line", REFUSED["paths"])
def test_a_path_that_the_system_refuses(line, world):
    for path in BAD_PATHS:
        refused(world, line.replace("PATH", path))


@pytest.mark.parametrize("text", REFUSED["files of settings"])
def test_a_file_of_settings(text, world):
    line = "adapt IMAGES -t dark --checkpoint SOURCE --log run --config settings.toml"
    message = refused(world, line, settings=text)
    assert [word for word in REFUSED["files of settings"][text] if word not in message] == [], message


@pytest.mark.parametrize(("old", "new", "message"), REFUSED["plans"])
def test_a_plan(old, new, message, world):
    plan = PLAN.replace(old, new)
    assert message in refused(world, "benchmark plan.toml DOMAINS --out out --print-commands", plan=plan)
    refused(world, "benchmark plan.toml DOMAINS --out out", plan=plan)
