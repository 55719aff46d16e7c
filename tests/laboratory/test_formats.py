"""Tables as text, and the page of the report."""

import re
from pathlib import Path

import pytest

from tests.laboratory.fabricated import frame_of, write_run
from tllib_ancon.laboratory.figures import figures
from tllib_ancon.laboratory.formats import rendered
from tllib_ancon.laboratory.tables import ACCURACY, table
from tllib_ancon.runtime.text import markdown


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


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    write_run(tmp_path, "ancon")
    runs = frame_of(tmp_path)
    page = rendered("page.html", title="", remarks=[], tables=[table(ACCURACY, runs)], pictures=figures(runs, [])[0])
    assert set(re.findall(r"""(?:src|href)\s*=\s*["']?(.{22})""", page)) == {"data:image/png;base64,"}
    assert "url(" not in page
    assert "@import" not in page
