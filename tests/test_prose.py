"""Texts that users read: short sentences, small table cells, standard terms, and errors with an action."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")]
SENTENCE, CELL = 28, 15
AVOIDED = re.compile(
    r"\b(those that|that which|is said|are said|is told|are told|goes on|go on|of which|so many|as (it|they) (is|are)|"
    r"is worth|refuse[sd]?|(says?|tells?) of|its first form|until commit|the rule before)\b"
)
ACTION = re.compile(
    r"\b(pass|give|choose|leave|use|take|install|save|expected|must|needs?|needed|add|name|try|let|remove|make|rename|"
    r"finish|copy|move|restore|start|smaller|write|label|adapt|train|fill|lower|set|register|return|load|wait|delete|"
    r"download|convert|evaluate|create|repair|check|resume)\b|did you mean|--help|names: |known|exclude each other|"
    r"between|at (least|most)|from 0|is for|belongs? to|outside 0|above 0|=True|'both'|1 \(adapted|go together|"
    r"say where|the flag is",
    re.IGNORECASE,
)
VARIABLES = {
    "advice",
    "ANEW",
    "DELETE",
    "error",
    "failures",
    "most",
    "why",
    "skipped",
    "problem",
    "layout",
    "unlabelled",
    "found",
    "FOLDER",
    "hint",
    "told",
    "strange",
    "_first",
    "one_line",
}
"""Names whose text holds the action, or another error with its own."""


def prose(page: Path) -> list[str]:
    """Sentences and table cells of a page, without code."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "`x`", text))
    found = []
    for block in re.split(r"\n\s*\n|\n(?=[-*|#] |\d+\. |\|)", text):
        if block.lstrip().startswith("|"):
            found += [f"| {cell.strip()}" for line in block.splitlines() for cell in line.strip("| ").split("|")]
        elif not block.lstrip().startswith("#"):
            found += re.split(r"(?<=[.!?:])\s+(?=[A-Z0-9`*(])", " ".join(block.split()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_and_cells_are_short_and_terms_are_standard(page: Path) -> None:
    limits = [(text, CELL if text.startswith("|") else SENTENCE) for text in prose(page)]
    assert [text for text, limit in limits if len(re.findall(r"[\w%.'-]*[A-Za-z][\w'-]*", text)) > limit] == []
    assert [text for text, _ in limits if AVOIDED.search(text)] == []


def messages() -> list[str]:
    """The constant text of every UserError in the package, with the names of its variables, such as ``advice``."""
    found = []
    for path in (ROOT / "tllib_ancon").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "UserError" and node.args:
                parts = [getattr(part, "value", getattr(part, "id", "")) for part in ast.walk(node.args[0])]
                text = " ".join(part for part in parts if isinstance(part, str))
                if len(text.split()) > 2:
                    found.append(f"{path.name}:{node.lineno}: {text}")
    return found


def acts(message: str) -> bool:
    return bool(ACTION.search(message) or VARIABLES & set(message.split()))


def test_every_error_says_what_to_do() -> None:
    found = messages()
    assert len(found) > 100
    assert [message for message in found if not acts(message.partition(": ")[2])] == []
