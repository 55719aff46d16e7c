"""Where the checkout is, what lies in it and beside it, and the code that its pages show."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
"""Development data that lies beside a checkout and is never part of it."""


def blocks_of(text, language):
    """The blocks of code of a page."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
