"""The table of the benchmarks leads to every page, and the commands of the pages parse."""

import argparse
import re
import shlex
from importlib import import_module

import pytest

from tests.support.places import ROOT

BENCHMARKS = ROOT / "benchmarks"
PAGES = sorted(BENCHMARKS.rglob("*.md"))
COMMAND = re.compile(r"python -m (benchmarks[\w.]*)((?:\\\n|[^`\n#>])*)")


class _ParsedError(Exception):
    """The words of a command were accepted."""


def test_every_program_of_the_pages_takes_the_words_that_they_show(monkeypatch):
    accepts = argparse.ArgumentParser.parse_args

    def parse_alone(parser, words):
        accepts(parser, words)
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    commands = {match.groups() for text in texts for match in COMMAND.finditer(text)}
    assert len(commands) > 20
    for module, words in sorted(commands):
        package = (ROOT / module.replace(".", "/")).is_dir()
        program = import_module(f"{module}.__main__" if package else module)
        with pytest.raises(_ParsedError):
            program.main(shlex.split(words.replace("\\\n", " ")))
