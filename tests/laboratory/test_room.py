"""No other room needs the packages of the laboratory: only commands import it."""

import ast
from pathlib import Path

import pytest

import tllib_ancon

PACKAGE = Path(tllib_ancon.__file__).parent
OUTSIDE = [path for path in sorted(PACKAGE.rglob("*.py")) if "laboratory" not in path.relative_to(PACKAGE).parts]
COMMANDS = PACKAGE / "cli" / "laboratory.py"


def imports_of_the_laboratory(nodes: list[ast.AST]) -> list[str]:
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [name for name in (*modules, *names) if name.startswith("tllib_ancon.laboratory")]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_other_rooms_import_nothing_of_the_laboratory_and_commands_when_they_run(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path != COMMANDS:
        assert imports_of_the_laboratory(list(tree.body)) == []
    if path.parent != COMMANDS.parent:
        assert imports_of_the_laboratory(list(ast.walk(tree))) == []
