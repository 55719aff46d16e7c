"""Texts that users read: short sentences, small table cells, standard terms, and errors with an action."""

import re
from inspect import signature
from pathlib import Path

import pytest

import tllib_ancon
from tests.messages import flags_in, messages, settings_in
from tllib_ancon.cli.main import COMMANDS, parser_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")]
SENTENCE = 28
CELL = 15
AVOIDED = re.compile(
    r"\b(those that|that which|is said|are said|is told|are told|goes on|go on|of which|so many|as (it|they) (is|are)|"
    r"is worth|refuse[sd]?|(says?|tells?) of|its first form|until commit|the rule before)\b"
)
VERBS = (
    "adapt|add|ask|build|call|certify|check|choose|collect|convert|copy|create|delete|draw|end|evaluate|export|fill|give|"
    "install|join|keep|label|leave|let|load|lower|make|move|name|open|pass|put|raise|read|register|remove|rename|repair|"
    "repeat|restore|resume|return|run|save|say|see|set|shrink|start|take|train|try|turn|use|wait|wrap|write"
)
BEFORE = r"(?:\w+ )?(?:then |else |or |to [\w ]+ |for [\w ]+ )?"
ADVICE = re.compile(
    rf"(?:^|[;:.,)…]\s+){BEFORE}(?:{VERBS})\b|\bor (?:{VERBS})\b|"
    r"\b(?:must (?:be|hold|return|name|have|lie|work)|expected|pip install)\b|did you mean|(?:Names|names|offered): |"
    r"--help lists them",
    re.IGNORECASE,
)
"""A verb that says what to do, at the start of a clause, or what the value must be."""


def prose(page):
    """Sentences and table cells of a page, without code."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "`x`", text))
    found = []
    for block in re.split(r"\n\s*\n|\n(?=[-*|#] |\d+\. |\|)", text):
        if block.lstrip().startswith("|"):
            for line in block.splitlines():
                cells = line.strip("| ").split("|")
                found += [f"| {cell.strip()}" for cell in cells]
        elif not block.lstrip().startswith("#"):
            found += re.split(r"(?<=[.!?:])\s+(?=[A-Z0-9`*(])", " ".join(block.split()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_and_cells_are_short_and_terms_are_standard(page):
    limits = [(text, CELL if text.startswith("|") else SENTENCE) for text in prose(page)]
    assert [text for text, limit in limits if len(re.findall(r"[\w%.'-]*[A-Za-z][\w'-]*", text)) > limit] == []
    assert [text for text, _ in limits if AVOIDED.search(text)] == []


MESSAGES = messages()
OPTIONS = {action.dest for name in COMMANDS for action in parser_of(name)._actions}
PARAMETERS = {
    parameter
    for name in tllib_ancon.__all__
    if callable(getattr(tllib_ancon, name)) and name != "UserError"
    for parameter in signature(getattr(tllib_ancon, name)).parameters
}
OF_A_PLAN = {"source_domain"}
OF_OTHER_PROGRAMS = {"--nproc-per-node", "--head", "--phase", "--force-reinstall"}
"""Flags of torchrun, of ``ray start``, pip and TLLib's scripts."""


def test_every_error_says_what_to_do():
    assert len(MESSAGES) > 250
    without_advice = [message for message in MESSAGES if not ADVICE.search(message.text)]
    assert [f"{message.place}: {message.text}" for message in without_advice] == []


def test_every_setting_and_flag_that_an_error_names_exists():
    """A setting between backticks is shown as a flag on the command line; in Python it may be an argument."""
    unknown = []
    for message in MESSAGES:
        settings = {name for name, _ in settings_in(message.text)}
        unknown += [(message.place, name) for name in settings - OPTIONS - PARAMETERS - OF_A_PLAN - message.parameters]
        flags = set(flags_in(message.text)) - OF_OTHER_PROGRAMS
        unknown += [(message.place, flag) for flag in flags if flag[2:].replace("-", "_") not in OPTIONS]
    assert unknown == []
