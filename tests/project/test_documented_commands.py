"""Every command, flag and Python name that a text of the project shows exists and is accepted."""

import ast
import builtins
import re
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.support.documented import (
    PAGES,
    ROOT,
    commands,
    current,
    flags_in_sentences,
    flags_of_benchmarks,
    imported,
    names_in_page,
    names_in_roles,
    notebook_cells,
    python_files,
    settings_of_script,
)
from tllib_ancon.cli.main import COMMANDS, parse, parser_of
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
    assert len({command.place for command in documented}) > 120


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


def options(parser):
    return {word for action in parser._actions for word in action.option_strings}


CURRENT = [page for page in PAGES if current(page)]
FLAGS = {name: options(parser_of(name)) for name in COMMANDS}
FLAGS["script"] |= options(second_stage_parser())
EVERY_FLAG = {"--version", "--verbose"}.union(*FLAGS.values())
FLAGS_OF_OTHERS = {
    "many_processes.md": {"--multi_gpu"},
    "own_method.md": {"--focus"},
    "tllib.md": {"--pretrain"},
    "CONTRIBUTING.md": {"--again"},
}
"""Page -> flags of Accelerate, of the package on the page, of the example script, and of tests/support/mutants.py."""


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_flag_in_a_sentence_exists(page):
    of_others = FLAGS_OF_OTHERS.get(page.name, set())
    if page.is_relative_to(ROOT / "benchmarks") or page.is_relative_to(ROOT / "tests"):
        of_others = flags_of_benchmarks()
    unknown = []
    for place, code, flag in flags_in_sentences(page):
        command = code.removeprefix("tllib-ancon ").split()[0]
        if flag not in FLAGS.get(command, EVERY_FLAG) | of_others:
            unknown.append(f"{place}: {code}: {flag}")
    assert unknown == []


def exists(name):
    """Whether a dotted name can be imported; an attribute may be a field of a class of settings."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if find_module(".".join(parts[:length])):
            return attribute(import_module(".".join(parts[:length])), parts[length:])
    return False


def find_module(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def attribute(owner, names):
    for name in names:
        fields = {**getattr(owner, "model_fields", {}), **getattr(owner, "__annotations__", {})}
        if not hasattr(owner, name):
            return name in fields
        owner = getattr(owner, name)
    return True


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_name_in_a_page_exists(page):
    named = [(place, name) for place, name in names_in_page(page) if not name.endswith((".md", ".py", ".toml"))]
    assert [f"{place}: {name}" for place, name in named if not exists(name)] == []


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_name_in_code_and_docstrings_exists(path):
    unknown = [name for name in imported(ast.parse(path.read_text(encoding="utf-8"))) if not exists(name)]
    for place, name in names_in_roles(path):
        if not (exists(name) or in_module(path, name)):
            unknown.append(f"{place}: {name}")
    assert unknown == []


def in_module(path, name):
    """Whether a short name is one of its module, or of a class there; examples are not imported."""
    if not path.is_relative_to(ROOT / "tllib_ancon"):
        return True
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    return any(attribute(owner, name.split(".")) for owner in (builtins, module, *classes))


def test_every_cell_of_the_notebooks_imports_what_exists():
    cells = [cell for cell in notebook_cells() if "import" in cell and not cell.lstrip().startswith(("#", "%", "!"))]
    trees = [ast.parse(re.sub(r"^( *)[%!].*", r"\1pass", cell, flags=re.MULTILINE)) for cell in cells]
    assert [name for tree in trees for name in imported(tree) if not exists(name)] == []
