"""Every table of a page, and every claim, is that of its rows."""

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import pages
from tllib_ancon.runtime.errors import UserError


def test_pages_and_claims_equal_their_rows():
    benchmarks.main(["page", "--check"])
    benchmarks.main(["claims", "--check"])


def test_a_table_is_written_between_its_marks():
    page = "before\n<!-- rows: emoji accuracy -->\n| 1 |\n<!-- end -->\nafter\n"
    written = pages.written(page)
    assert "| 1 |" not in written
    assert "| source model | 49.0 | 49.0 | 60.9 |" in written
    assert written.startswith("before\n<!-- rows: emoji accuracy -->\n|  | emoji |")
    assert written.endswith("<!-- end -->\nafter\n")
    assert pages.written(written) == written


def test_a_stale_page_and_a_stale_claim_are_errors(monkeypatch, tmp_path):
    docs = tmp_path / "docs"
    (tmp_path / "benchmarks").mkdir()
    docs.mkdir()
    (tmp_path / "README.md").write_text("<!-- rows: emoji accuracy -->\n<!-- end -->\n")
    (docs / "claims.md").write_text("<!-- claims -->\n| AnCon always helps | yes |\n<!-- end -->\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "CLAIMS_PAGE", docs / "claims.md")
    for command in ("page", "claims"):
        with pytest.raises(UserError, match="differs from the rows"):
            benchmarks.main([command, "--check"])
        benchmarks.main([command])
        benchmarks.main([command, "--check"])
    assert "always helps" not in (docs / "claims.md").read_text()
