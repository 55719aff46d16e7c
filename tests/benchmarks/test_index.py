"""The table of the benchmarks leads to every page, every list of runs to the page that names it, and commands parse."""

import argparse
import re
import shlex
from importlib import import_module

import pytest

from tests.benchmarks.recorded import BENCHMARKS

INDEX = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
PAGES = sorted(path for path in BENCHMARKS.rglob("*.md") if path != BENCHMARKS / "README.md")
LISTS = sorted(path for path in BENCHMARKS.rglob("*.csv") if path.parent.name != "results")
COMMAND = re.compile(r"python -m (benchmarks[\w.]*)((?:\\\n|[^`\n#>])*)")


class _ParsedError(Exception):
    """The words of a command were accepted."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(BENCHMARKS).as_posix())
def test_every_page_has_a_row_with_its_question(page):
    link = f"]({page.relative_to(BENCHMARKS).as_posix()}"
    rows = [line for line in INDEX.splitlines() if link in line]

    assert any(re.match(r"\| [^|]+[?] \|", row) for row in rows)


@pytest.mark.parametrize("file", LISTS, ids=lambda file: file.relative_to(BENCHMARKS).as_posix())
def test_every_list_of_runs_is_named_by_a_page_beside_it(file):
    texts = [page.read_text(encoding="utf-8") for page in file.parent.glob("*.md")]
    assert any(file.name in text for text in texts)


def test_every_program_of_the_pages_takes_the_words_that_they_show(monkeypatch):
    accepts = argparse.ArgumentParser.parse_args

    def parse_alone(parser, words):
        accepts(parser, words)
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    texts = [path.read_text(encoding="utf-8") for path in [BENCHMARKS / "README.md", *PAGES]]
    commands = {match.groups() for text in texts for match in COMMAND.finditer(text)}
    assert len(commands) > 20
    for module, words in sorted(commands):
        package = (BENCHMARKS.parent / module.replace(".", "/")).is_dir()
        program = import_module(f"{module}.__main__" if package else module)
        with pytest.raises(_ParsedError):
            program.main(shlex.split(words.replace("\\\n", " ")))
