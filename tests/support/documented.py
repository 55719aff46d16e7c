"""What the texts of the project name: commands, flags and Python names, each with its place.

Blocks of shell run in a bash that has no programs but functions which record the words of ``tllib-ancon``, so that
variables, loops, continued lines and heredocs mean what they mean to a reader who types them.
"""

import ast
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.rst")),
    *sorted((ROOT / "examples").rglob("*.txt")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
    *sorted((ROOT / "tests").rglob("*.md")),
]
PAGES = [page for page in PAGES if not {"generated", "gallery", "_build"} & set(page.parts)]
OLD_COMMIT = re.compile(r"^commit: `?[0-9a-f]{7,40}`?", re.MULTILINE)
"""Of a page of results whose commands are those of an earlier version."""
PROGRAM = re.compile(r"(?:tllib-ancon|-m (?:-- )?tllib_ancon) +(?=[a-zA-Z]|--)")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
PLACEHOLDER = {"…", "...", ".."}

STUBS = r"""
tllib-ancon() { printf '%s\0' "${BASH_LINENO[-2]}" "$@" $'\n' >> "$RECORD"; }
_package() {
    while [ $# -gt 0 ] && [ "$1" != tllib_ancon ]; do shift; done
    if [ $# -gt 1 ]; then shift; tllib-ancon "$@"; fi
}
python() { _package "$@"; }; torchrun() { _package "$@"; }; accelerate() { _package "$@"; }
timeout() { while [[ $1 == -* ]]; do shift; done; shift; "$@"; }
nproc() { echo 2; }; awk() { echo 540; }
mkdir() { _mkdir "$@"; }
command_not_found_handle() { :; }
"""


@dataclass(frozen=True)
class Documented:
    """A command as a text shows it, and the plan that the text writes for it."""

    place: str
    words: tuple[str, ...]
    plan: str = ""

    def __str__(self):
        return f"{self.place} {' '.join(self.words)}"[:100]


def current(page):
    return not OLD_COMMIT.search(page.read_text(encoding="utf-8"))


def place(path, line):
    return f"{path.relative_to(ROOT)}:{line}"


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def typed(script, folder, *arguments):
    """Line and words of each command of the package in a shell script that runs in an empty folder."""
    tools = folder / "tools"
    record = folder / "record"
    tools.mkdir(exist_ok=True, parents=True)
    for name, program in (("_mkdir", "mkdir"), ("cat", "cat"), ("dirname", "dirname"), ("grep", "grep")):
        if not (tools / name).exists():
            (tools / name).symlink_to(str(shutil.which(program)))
    (folder / "stubs").write_text(STUBS)
    record.write_bytes(b"")
    environment = {"PATH": str(tools), "BASH_ENV": str(folder / "stubs"), "RECORD": str(record), "HOME": str(folder)}
    (folder / "script").write_text(script)
    command = [str(shutil.which("bash")), str(folder / "script"), *arguments]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    lines = [entry.split("\0") for entry in record.read_text().split("\n\0")[:-1]]
    return [(int(number), [word for word in words[:-1] if word not in PLACEHOLDER]) for number, *words in lines]


def shell_commands(folder):
    """From the blocks of shell in the pages, and from the scripts of the benchmarks."""
    for page in filter(current, PAGES):
        text = page.read_text(encoding="utf-8")
        for block in FENCE.finditer(text):
            if block[1] in ("sh", "bash", "console"):
                first = line_of(text, block.start())
                for number, words in typed(block[2], folder):
                    yield Documented(place(page, first + number), tuple(words), written_plan(words, folder))
    for script in sorted((ROOT / "benchmarks").rglob("*.sh")):
        for number, words in typed(script.read_text(encoding="utf-8"), folder, "DATA", "WEIGHTS", "OUT"):
            yield Documented(place(script, number), tuple(words), written_plan(words, folder))
    for workflow in sorted((ROOT / ".github").rglob("*.yml")):
        for number, line in enumerate(workflow.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip().startswith("- run: tllib-ancon"):
                for _, words in typed(line.partition("run: ")[2], folder):
                    yield Documented(place(workflow, number), tuple(words))


def written_plan(words, folder):
    """The plan that the lines before a ``benchmark`` have written into the folder."""
    plans = [folder / word for word in words[1:2] if words[0] == "benchmark" and word.endswith(".toml")]
    return plans[0].read_text() if plans and plans[0].is_file() else ""


def settings_of_script(script):
    """Names of the variables that the comment of a script lists, such as ``SEEDS`` or ``CACHE (a folder)``."""
    text = script.read_text(encoding="utf-8")
    comment = re.match(r"(?:#.*\n)*", text)[0]
    listed = re.search(r"[Ff]rom the environment[,:](.*?)(?:\. |\Z)", comment, re.DOTALL)
    if listed is None:
        return set()
    return set(re.findall(r"\b([A-Z][A-Z_]{3,})\b(?! *(?:'s|->))", listed[1]))


def inline_commands(page):
    """From the sentences and the shown output of a page."""
    text = page.read_text(encoding="utf-8")
    sentences = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    for code in INLINE.finditer(sentences):
        if start := PROGRAM.match(code[1]):
            yield Documented(place(page, line_of(sentences, code.start())), words_of(code[1][start.end() :]))
    for block in FENCE.finditer(text):
        if block[1] not in ("sh", "bash", "console"):
            for shown in re.finditer(r"tllib-ancon ([a-z]+(?: \S+)*)", block[2]):
                line = line_of(text, block.start(2) + shown.start())
                yield Documented(place(page, line), words_of(shown[1]))


def words_of(text):
    return tuple(word for word in text.split("#")[0].split() if word not in PLACEHOLDER)


def commands(folder):
    """Every command that a text of the project shows."""
    found = list(shell_commands(folder))
    for page in filter(current, PAGES):
        found += inline_commands(page)
    return list(dict.fromkeys(found))


def imported(tree):
    """Dotted names that code imports from the package, and attributes of ``tllib_ancon`` that it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "tllib_ancon":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "tllib_ancon")
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("tllib_ancon."):
            yield ast.unparse(node)
