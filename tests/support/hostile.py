"""Names that a terminal, a page or a spreadsheet would obey."""

import re
import unicodedata

from tests.support.refusals import REFUSED

HOSTILE_NAMES = REFUSED["hostile names"]


def assert_safe(text):
    """No character but a newline that acts and shows nothing, no forged line."""
    hidden = [character for character in text if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert set(hidden) <= {"\n"}
    assert not re.search(r"^FORGED", text, re.MULTILINE)
