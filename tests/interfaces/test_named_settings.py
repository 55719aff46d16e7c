"""Every setting that an error or a note names exists, so that its flag exists, too."""

import re
from inspect import signature
from pathlib import Path

import tllib_ancon
from tllib_ancon.cli.main import COMMANDS, parser_of

PACKAGE = Path(tllib_ancon.__file__).parent


def test_every_setting_that_a_message_names_exists():
    """It is a flag, or a parameter of a public function or of one in the same file."""
    settings = set()
    for command in COMMANDS:
        settings |= {action.dest for action in parser_of(command).arguments()}
    for name in set(tllib_ancon.__all__) - {"UserError", "__version__", "methods"}:
        settings |= set(signature(getattr(tllib_ancon, name)).parameters)
    unknown = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        names = set(re.findall(r'\bnamed\("(\w+)"', text))
        unknown += [f"{path.name}: {name}" for name in names - settings - set(re.findall(r"\b(\w+):", text))]
    assert unknown == []
