from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = [line for line in (ROOT / "docs" / "faults.md").read_text().splitlines() if re.match(r"\| (?!fault |-)", line)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:50])
def test_every_row_names_a_test_that_exists(row: str) -> None:
    names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.split("|")[-2])
    assert names
    for path, function in names:
        tree = ast.parse((ROOT / path).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
