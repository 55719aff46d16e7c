"""No other room needs the packages of the laboratory: only commands import it."""

import ast
from pathlib import Path

import pytest

import tllib_ancon
from tests.support.project import names_of_imports

PACKAGE = Path(tllib_ancon.__file__).parent
OUTSIDE = [path for path in sorted(PACKAGE.rglob("*.py")) if "laboratory" not in path.relative_to(PACKAGE).parts]
COMMANDS = PACKAGE / "cli" / "laboratory.py"


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_other_rooms_import_nothing_of_the_laboratory_and_commands_when_they_run(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    if path == COMMANDS:
        nodes = []
    elif path.parent == COMMANDS.parent:
        nodes = tree.body
    assert [name for name in names_of_imports(nodes) if name.startswith("tllib_ancon.laboratory")] == []
