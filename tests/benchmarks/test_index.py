"""The table of the benchmarks leads to every page, and every list of runs lies beside a page that names it."""

import re
from pathlib import Path

import pytest

from tests.benchmarks.recorded import BENCHMARKS

INDEX = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
PAGES = sorted(path for path in BENCHMARKS.rglob("*.md") if path != BENCHMARKS / "README.md")
LISTS = sorted(path for path in BENCHMARKS.rglob("*.csv") if path.parent.name != "results")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(BENCHMARKS).as_posix())
def test_every_page_has_a_row_with_its_question(page: Path) -> None:
    rows = [line for line in INDEX.splitlines() if f"]({page.relative_to(BENCHMARKS).as_posix()}" in line]
    assert rows
    assert all(re.match(r"\| [^|]+[?] \|", row) for row in rows)


@pytest.mark.parametrize("file", LISTS, ids=lambda file: file.relative_to(BENCHMARKS).as_posix())
def test_every_list_of_runs_is_named_by_a_page_beside_it(file: Path) -> None:
    assert any(file.name in page.read_text(encoding="utf-8") for page in file.parent.glob("*.md"))
