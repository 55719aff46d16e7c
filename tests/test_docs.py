"""The pages of the site are complete: every file of a run, every flag and every setting."""

import argparse
import ast
import importlib
import re
import runpy
import shlex
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import tllib_ancon
from tllib_ancon import adapt, methods
from tllib_ancon.cli.main import COMMANDS, main, parser_of
from tllib_ancon.cli.script import second_stage_parser
from tllib_ancon.config import AdaptConfig
from tllib_ancon.settings import settings_of

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generate() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(DOCS / "generate.py")))


def test_every_file_of_a_run_is_on_its_page(tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = [torch.randn(3, 8, 8) for _ in range(20)]
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    keep = {"save_predictions": True}
    adapt(model, images, epochs=2, batch_size=4, workers=0, quiet=True, log=tmp_path / "run", **keep)
    files = [path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) > 8
    page = (DOCS / "run_directory.md").read_text()
    named = {re.sub(r"\d{3}", "NNN", name) for name in files}
    assert {name for name in named if f"`{name}`" not in page} == set()


def test_every_flag_of_every_command_is_in_the_reference(generate: SimpleNamespace) -> None:
    pages = generate.commands()
    assert set(pages) == {"commands.md", *(f"commands/{name}.md" for name in COMMANDS)}
    for name in COMMANDS:
        parser = parser_of(name)
        parsers = [parser, second_stage_parser()] if name == "script" else [parser]
        actions = [one for each in parsers for one in each._actions if argparse.SUPPRESS not in (one.dest, one.help)]
        flags = [word for action in actions for word in action.option_strings]
        assert [word for word in flags if f"`{word}`" not in pages[f"commands/{name}.md"]] == []


def test_every_line_of_the_tutorial_runs(tmp_path: Path, few_digits: int, monkeypatch, capsys) -> None:
    """As it stands, but for one epoch in place of ten, and few images."""
    monkeypatch.chdir(tmp_path)
    blocks = "".join(re.findall(r"```sh\n(.*?)```", (DOCS / "tutorial.md").read_text(), re.DOTALL))
    ran = []
    for line in re.split(r"\n(?=tllib-ancon)", blocks.replace("\\\n", "").replace("--epochs 10", "--epochs 1")):
        program, *words = shlex.split(line)
        if program == "python":
            exec(words[1], {})
            continue
        quick = ["--quiet"] if words[0] in ("pretrain", "assess", "adapt", "evaluate", "predict", "certify") else []
        assert (program, main([*words, *quick])) == ("tllib-ancon", 0), capsys.readouterr().err
        ran.append(words[0])
    assert ran == ["pretrain", "assess", "adapt", "evaluate", "predict", "certify", "report"]
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == few_digits + 1
    assert (tmp_path / "report" / "report.html").is_file()
    assert (tmp_path / "runs" / "digits" / "certify.npz").is_file()


def test_every_setting_is_in_the_reference_with_its_meaning(generate: SimpleNamespace) -> None:
    pages = generate.settings()
    settings, options = pages["settings/AdaptConfig.md"], pages["settings/methods.md"]
    for name in [*settings_of(AdaptConfig), *methods.settings()]:
        (row, *_) = re.findall(rf"^\| `{name}` \|.*\|$", settings + options, re.MULTILINE)
        assert len(row.split(" | ")[-1].strip(" |")) > 3, row
    assert all(f"## `{name}`" in options for name in methods.names())


def test_every_public_name_is_in_the_reference() -> None:
    page = "".join(path.read_text() for path in (DOCS / "python").glob("*.rst"))
    whole = re.findall(r"automodule:: (\S+)\n   :members:\n", page)
    shown = {name for module in whole for name in public(importlib.import_module(module))}
    shown |= {word.rpartition(".")[2] for word in re.findall(r"auto\w+:: (\S+)", page)}
    shown |= {name for names in re.findall(r":members: (.+)", page) for name in names.split(", ")}
    assert set(tllib_ancon.__all__) - shown == {"__version__"}
    assert set(methods.__all__) <= shown


def public(module: ModuleType) -> list[str]:
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", defined)


def test_a_stale_table_is_written_anew() -> None:
    written = runpy.run_path(str(DOCS / "kept_numbers.py"))["written"]
    page = "before\n<!-- numbers: {} -->\n| 1 |\n<!-- end -->\nafter\n"
    for name, cells in (("demo", 5), ("left_out", 8)):
        made = written(page.format(name))
        (row,) = re.findall(r"^\| ancon-auto \|.*\|$", made, re.MULTILINE)
        assert row.count("|") == cells + 1
        assert "| 1 |" not in made
        assert (made.startswith("before\n<!--"), made.endswith("<!-- end -->\nafter\n")) == (True, True)
        assert written(made) == made


def test_a_stale_sentence_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(DOCS / "kept_numbers.py"))["main"]
    monkeypatch.setitem(main.__globals__, "sentences", lambda: {"docs/claims.md": ["+9.9 points"]})
    with pytest.raises(SystemExit, match="1"):
        main(check=True)
    assert "docs/claims.md: does not say '+9.9 points'" in capsys.readouterr().out


FAULTS = (ROOT / "benchmarks" / "results" / "fault_tests.md").read_text().splitlines()
ROWS = [line for line in FAULTS if re.match(r"\| (?!fault |-)", line)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:50])
def test_every_fault_names_a_test_that_exists(row: str) -> None:
    names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.split("|")[-2])
    assert names
    for path, function in names:
        tree = ast.parse((ROOT / path).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
