"""Bad input of each kind is one line that names the flag or the file, exit status 2, and nothing is written."""

import shlex
from pathlib import Path

import pytest

from tests.support.domains_on_disk import small_arguments
from tests.support.json_files import read_json
from tllib_ancon.cli.main import main

FILES = Path(__file__).with_name("refused")
REFUSED = read_json(FILES / "commands.json")
"""Words of a command -> what its message says; what stands in a file in place of something right, and the same."""
PLAN = """
title = "t"
dataset = "ImageList"
pairs = ["bright-dark"]
methods = ["ancon"]
# more
[source.erm]
epochs = 1
"""


@pytest.fixture
def message_of(domains, source_checkpoint, tmp_path, monkeypatch, capsys):
    """The message about a command, in which some words stand for places, in a folder with these files."""
    source = source_checkpoint.parents[1]
    places = {"IMAGES": shlex.join(small_arguments(domains)), "DOMAINS": domains, "SOURCE": source, "FILES": FILES}
    monkeypatch.chdir(tmp_path)

    def run(line, **files):
        for name, place in places.items():
            line = line.replace(name, str(place))
        for name, text in files.items():
            (tmp_path / f"{name}.toml").write_bytes(text.encode(errors="surrogateescape"))
        before = contents(tmp_path, domains, source)
        assert main(shlex.split(line)) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (message,) = printed.err.splitlines()
        assert message.startswith("tllib-ancon: error: ")
        assert len(message) < 1000
        assert contents(tmp_path, domains, source) == before
        return message

    return run


def contents(*folders):
    return {path: path.lstat().st_mtime_ns for folder in folders for path in folder.rglob("*")}


@pytest.mark.parametrize("line", REFUSED["lines"])
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(line, message_of):
    message = message_of(line)
    assert [word for word in REFUSED["lines"][line] if word not in message] == [], message


@pytest.mark.parametrize("line", REFUSED["paths"])
def test_a_path_that_the_system_refuses(line, message_of):
    message_of(line.replace("PATH", "x" * 300))


@pytest.mark.parametrize("text", REFUSED["files of settings"])
def test_a_file_of_settings(text, message_of):
    message = message_of("adapt IMAGES -t dark --checkpoint SOURCE --log run --config settings.toml", settings=text)
    assert [word for word in REFUSED["files of settings"][text] if word not in message] == [], message


@pytest.mark.parametrize(("old", "new", "message"), REFUSED["plans"])
def test_a_plan(old, new, message, message_of):
    plan = PLAN.replace(old, new)
    assert message in message_of("benchmark plan.toml DOMAINS --out out --print-commands", plan=plan)
    message_of("benchmark plan.toml DOMAINS --out out", plan=plan)
