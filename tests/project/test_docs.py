"""The pages of the site are complete: every file of a run, every flag and every setting."""

import argparse
import importlib
import json
import re
import runpy
import shlex
from types import SimpleNamespace

import numpy as np
import pytest

import tllib_ancon
from tests.support.domains_on_disk import adapt_arguments, small_arguments
from tests.support.json_files import read_json
from tests.support.places import ROOT, blocks_of
from tllib_ancon import methods
from tllib_ancon.cli.main import COMMANDS, main, parser_of
from tllib_ancon.cli.script import second_stage_parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import settings_of

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generate():
    return SimpleNamespace(**runpy.run_path(str(DOCS / "generate.py")))


def fields_on_the_page(section):
    """The names in the first column of a section of the page of a run's files."""
    page = (DOCS / "run_directory.md").read_text()
    (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def finished_runs(domains, tmp_path_factory):
    """A source model of each kind, and adaptations that differ in what they record."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {name: folder / name for name in ("erm", "cdan", "ancon-auto", "nrc+ancon")}
    cdan = ["-t", "dark", "--method", "cdan", "-i", "2"]
    assert main(["pretrain", *small_arguments(domains), "--epochs", "1", "--log", str(runs["erm"])]) == 0
    assert main(["pretrain", *small_arguments(domains), *cdan, "--epochs", "1", "--log", str(runs["cdan"])]) == 0
    for method in ("ancon-auto", "nrc+ancon"):
        assert main([*adapt_arguments(domains, runs["erm"], runs[method]), "--method", method]) == 0
    return runs


def test_every_file_and_field_of_a_run_is_on_its_page(finished_runs):
    written = {"metrics.jsonl": set(), "result.json": set(), "config.json": set()}
    page = (DOCS / "run_directory.md").read_text()
    for run in finished_runs.values():
        files = [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()]
        assert [name for name in files if f"`{name}`" not in page] == []
        for name in ("result.json", "config.json"):
            written[name] |= set(read_json(run / name))
        for line in (run / "metrics.jsonl").read_text().splitlines():
            written["metrics.jsonl"] |= set(json.loads(line))
    written["config.json"] -= {*settings_of(AdaptConfig), *settings_of(PretrainConfig), *methods.settings()}
    for name, fields in written.items():
        assert fields - fields_on_the_page(name) == set(), name
    rare = {
        "effective_classes_collapsed",  # these two are of an epoch that collapsed
        "infomax_collapsed",
        "teacher_weight",  # of a run with a teacher
        "accuracy_one_view",  # of images that differ from their mirrors
    }
    assert fields_on_the_page("metrics.jsonl") - rare == written["metrics.jsonl"] - rare
    assert fields_on_the_page("result.json") == written["result.json"]


def test_every_column_of_predictions_is_on_its_page(finished_runs, domains, tmp_path):
    words = ["predict", str(domains / "dark"), "--checkpoint", str(finished_runs["ancon-auto"]), "--quiet"]
    assert main([*words, "--probabilities", "--out", str(tmp_path / "all.csv")]) == 0
    assert main([*words, "--out", str(tmp_path / "all.npz")]) == 0
    header = (tmp_path / "all.csv").read_text().splitlines()[0]
    assert {re.sub("probability_.*", "probability_NAME", name) for name in header.split(",")} == fields_on_the_page(
        "predictions.csv"
    )
    page = (DOCS / "run_directory.md").read_text()
    with np.load(tmp_path / "all.npz") as arrays:
        assert [name for name in arrays if f"`{name}`" not in page] == []


def test_every_flag_of_every_command_is_in_the_reference(generate):
    pages = generate.commands()
    assert set(pages) == {"commands.md", *(f"commands/{name}.md" for name in COMMANDS)}
    for name in COMMANDS:
        parser = parser_of(name)
        parsers = [parser, second_stage_parser()] if name == "script" else [parser]
        actions = [one for each in parsers for one in each.arguments() if argparse.SUPPRESS not in (one.dest, one.help)]
        flags = [word for action in actions for word in action.option_strings]
        page = pages[f"commands/{name}.md"]
        assert [word for word in flags if f"`{word}`" not in page] == []


def test_every_line_of_the_tutorial_runs(tmp_path, few_digits, monkeypatch, capsys):
    """As it stands, but for one epoch in place of ten, and few images."""
    monkeypatch.chdir(tmp_path)
    blocks = "".join(blocks_of((DOCS / "tutorial.md").read_text(), "sh"))
    ran = []
    for line in re.split(r"\n(?=tllib-ancon)", blocks.replace("\\\n", "").replace("--epochs 10", "--epochs 1")):
        program, *words = shlex.split(line)
        if program == "python":
            exec(words[1], {})
            continue
        quick = ["--quiet"] if words[0] in ("pretrain", "adapt", "evaluate", "predict", "certify") else []
        assert (program, main([*words, *quick])) == ("tllib-ancon", 0), capsys.readouterr().err
        ran.append(words[0])
    assert ran == ["pretrain", "adapt", "evaluate", "predict", "certify", "report"]
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == few_digits + 1
    assert (tmp_path / "report" / "report.html").is_file()
    assert (tmp_path / "runs" / "digits" / "certify.npz").is_file()


def test_every_setting_is_in_the_reference_with_its_meaning(generate):
    pages = generate.settings()
    settings = pages["settings/AdaptConfig.md"]
    options = pages["settings/methods.md"]
    for name in [*settings_of(AdaptConfig), *methods.settings()]:
        (row, *_) = re.findall(rf"^\| `{name}` \|.*\|$", settings + options, re.MULTILINE)
        assert len(row.split(" | ")[-1].strip(" |")) > 3, row
    assert all(f"## `{name}`" in options for name in methods.names())


def test_every_public_name_is_in_the_reference():
    page = "".join(path.read_text() for path in (DOCS / "python").glob("*.rst"))
    whole = re.findall(r"automodule:: (\S+)\n   :members:\n", page)
    shown = {name for module in whole for name in public(importlib.import_module(module))}
    shown |= {word.rpartition(".")[2] for word in re.findall(r"auto\w+:: (\S+)", page)}
    shown |= {name for names in re.findall(r":members: (.+)", page) for name in names.split(", ")}
    assert set(tllib_ancon.__all__) - shown == {"__version__"}
    assert set(methods.__all__) <= shown


def public(module):
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", defined)


def test_every_promise_names_a_test_file_and_every_file_of_promises_guards_one():
    table = (ROOT / "tests" / "README.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py)`", table))
    assert {name for name in named if not (ROOT / "tests" / name).is_file()} == set()
    files = {f"promises/{path.name}" for path in (ROOT / "tests" / "promises").glob("test_*.py")}
    assert files - named == set()
