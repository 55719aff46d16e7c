"""Names of files, classes and domains that a terminal, a page or a spreadsheet would obey are shown as text."""

import csv
import re

import pytest

from tests.support.hostile import HOSTILE_NAMES, assert_safe
from tllib_ancon.runtime.text import cell, csv_text, html, markdown, showable


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_a_hostile_name_is_one_line_of_text_on_every_medium(name):
    for shown in (showable(name), html(name), markdown(name), cell(name)):
        assert_safe(shown)
        assert "\n" not in shown
    assert "<" not in markdown(name)
    assert "![x](" not in markdown(name)
    ((in_a_table,),) = csv.reader(csv_text([[name]]).splitlines())
    assert in_a_table == cell(name)
    assert not re.match(r"[=+@]|-\D", in_a_table)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A_b", "A_b"),
        ("_a_ *b* `c` d|e ~~f~~", r"\_a\_ \*b\* \`c\` d\|e \~\~f\~\~"),
        ("<script>alert(1)</script> & so", "&lt;script&gt;alert(1)&lt;/script&gt; &amp; so"),
        ("![x](https://evil)", r"![x\](https://evil)"),
        ("one\n# two\r\n| three", r"one\\n# two\\r\\n\| three"),
    ],
)
def test_what_markdown_would_take_for_its_own_is_escaped(text, shown):
    assert markdown(text) == shown


def test_numbers_and_ordinary_names_stay_as_they_are():
    assert csv_text([["a.jpg", "-1.5", 3, None, "- 1"]]) == "a.jpg,-1.5,3,,'- 1\n"
    assert showable("Größe 3") == "Größe 3"
