"""Every command that a page of the project shows exists and is accepted."""

import re

import pytest

from tests.support.documented import (
    ROOT,
    commands,
    settings_of_script,
)
from tllib_ancon.cli.main import COMMANDS, parse
from tllib_ancon.cli.script import _adaptation_flags, second_stage_parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.laboratory.plan import load


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    return commands(tmp_path_factory.mktemp("typed"))


ANY_COMMAND = {"COMMAND", "WORDS", "X"}
"""What stands in a text for the name of a command; an X is a value in a message."""


def configure(words):
    """Parse a command up to its configuration, without the files that it names."""
    if words and words[0] in ANY_COMMAND:
        words = ("adapt", *words[1:])
    if len(words) == 1 and words[0] in COMMANDS:
        return
    args = parse(list(words))
    if args.chosen == "script":
        second_stage(args.arguments)
        return
    args.config = None
    args.command.configured(args)


def second_stage(words):
    if "--method" in words:
        second = second_stage_parser().parsed(words[words.index("--method") :])
        AdaptConfig(**_adaptation_flags().settings_in(second))


def failure(command):
    try:
        configure(command.words)
    except SystemExit as end:
        return None if end.code in (None, 0) else f"{command}: exit {end.code}"
    except Exception as error:
        return f"{command}: {error}"
    return None


def test_every_documented_command_is_one(documented):
    failures = [failure(command) for command in documented]
    assert [line for line in failures if line is not None] == []
    assert len({command.place for command in documented}) > 100


def test_every_written_plan_loads(documented, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    plans = {command.plan for command in documented if command.plan}
    assert len(plans) > 3
    for number, text in enumerate(sorted(plans)):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        for run in load(str(path)).runs("ROOT", tmp_path):
            assert run.config is not None


@pytest.mark.parametrize("script", sorted((ROOT / "benchmarks").rglob("*.sh")), ids=lambda script: script.name)
def test_a_script_reads_every_setting_that_its_comment_lists(script):
    code = re.sub(r"^#.*", "", script.read_text(), flags=re.MULTILINE)
    listed = settings_of_script(script)
    assert [name for name in listed if not re.search(rf"\$\{{?{name}\b", code)] == []
