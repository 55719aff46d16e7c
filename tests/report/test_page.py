from __future__ import annotations

import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.fabricated import write_run
from tllib_ancon.report.figures import figures
from tllib_ancon.report.page import page
from tllib_ancon.report.runs import read_runs
from tllib_ancon.report.tables import ACCURACY, Cell, Line, Table, table

HOSTILE = "<script>alert(1)</script> & \"quoted\" 'too'"
MEASURE = """<script>
const overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const drawn = [...document.images].filter(image => image.complete && image.naturalWidth > 0).length;
const rows = document.querySelectorAll("tbody tr").length;
parent.document.title = `width ${innerWidth} overflow ${overflow} images ${drawn} rows ${rows}`;
</script></body>"""


@pytest.fixture
def made(tmp_path: Path) -> str:
    """A page of fourteen columns and one figure."""
    for number in range(14):
        write_run(tmp_path, "ancon", f"Domain{number}-D")
    runs = read_runs([tmp_path])[0]
    return page(
        "A report with a title of some length for a narrow screen",
        ["a remark"],
        [table(ACCURACY, runs, [])],
        figures(runs, [])[0],
    )


def test_every_text_is_escaped() -> None:
    lines = [Line("other", HOSTILE, {HOSTILE: Cell(1.0)}, HOSTILE)]
    text = page(HOSTILE, [HOSTILE], [Table("t", HOSTILE, [HOSTILE], lines, [HOSTILE])], [])
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 6


def test_nothing_is_loaded_from_elsewhere(made: str) -> None:
    class Links(HTMLParser):
        found: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag, attributes):
            self.found += [value for name, value in attributes if name in ("src", "href")]

    links = Links()
    links.feed(made)
    assert links.found
    assert all(link.startswith("data:image/png;base64,") for link in links.found)
    assert "url(" not in made
    assert "@import" not in made


@pytest.mark.parametrize("width", [360, 1200])
def test_chromium_shows_it_without_sideways_scrolling(made: str, tmp_path: Path, width: int) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    path = tmp_path / "page.html"
    inner = escape(made.replace("</body>", MEASURE))
    frame = f'<iframe style="border: 0; height: 800px; width: {width}px" srcdoc="{inner}"></iframe>'
    path.write_text(f"<!DOCTYPE html><html><head><title></title></head><body>{frame}</body></html>", encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=3000",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    shown = subprocess.run(
        [chromium, *flags, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    assert title[1] == f"width {width} overflow 0 images {made.count('<img')} rows 2"
