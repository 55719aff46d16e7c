"""Tables as text, and the page of the report in a browser."""

import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest

from tests.report.fabricated import frame_of, write_run
from tllib_ancon.report.figures import figures
from tllib_ancon.report.formats import rendered
from tllib_ancon.report.tables import ACCURACY, table
from tllib_ancon.text import markdown

MEASURE = """<script>
const overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const drawn = [...document.images].filter(image => image.complete && image.naturalWidth > 0).length;
const rows = document.querySelectorAll("tbody tr").length;
parent.document.title = `width ${innerWidth} overflow ${overflow} images ${drawn} rows ${rows}`;
</script></body>"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A_b", "A_b"),
        ("_a_ *b* `c` d|e ~~f~~", r"\_a\_ \*b\* \`c\` d\|e \~\~f\~\~"),
        ("<script>alert(1)</script> & so", "&lt;script&gt;alert(1)&lt;/script&gt; &amp; so"),
        ("![x](https://evil)", r"![x\](https://evil)"),
        ("bins over [0, 1]", "bins over [0, 1]"),
        ("one\n# two\r\n| three", r"one\\n# two\\r\\n\| three"),
    ],
)
def test_what_markdown_would_take_for_its_own_is_escaped(text: str, shown: str) -> None:
    assert markdown(text) == shown


@pytest.fixture
def wide(tmp_path: Path) -> str:
    """A page of fourteen columns and one figure."""
    for number in range(14):
        write_run(tmp_path, "ancon", f"Domain{number}-D")
    runs = frame_of(tmp_path)
    content = {"remarks": ["a remark"], "tables": [table(ACCURACY, runs)], "pictures": figures(runs, [])[0]}
    return rendered("page.html", title="A report with a title of some length for a narrow screen", **content)


def test_nothing_is_loaded_from_elsewhere(wide: str) -> None:
    found = re.findall(r"""(?:src|href)\s*=\s*["']?(.{22})""", wide)
    assert set(found) == {"data:image/png;base64,"}
    assert "url(" not in wide
    assert "@import" not in wide


def test_chromium_shows_it_without_sideways_scrolling(wide: str, tmp_path: Path) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    path = tmp_path / "page.html"
    inner = escape(wide.replace("</body>", MEASURE))
    frame = f'<iframe style="border: 0; height: 800px; width: 360px" srcdoc="{inner}"></iframe>'
    path.write_text(f"<!DOCTYPE html><html><head><title></title></head><body>{frame}</body></html>", encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"]
    command = [chromium, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    assert title[1] == f"width 360 overflow 0 images {wide.count('<img')} rows 2"
