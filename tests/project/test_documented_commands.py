"""Every command that a page of the project shows exists and is accepted."""

import re
import shlex

from tests.support.places import ROOT
from tllib_ancon.cli.main import COMMANDS, parse
from tllib_ancon.laboratory.plan import load

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")]
PAGES += [page for folder in ("docs", "benchmarks") for page in sorted((ROOT / folder).rglob("*.md"))]
PAGES = [page for page in PAGES if not {"generated", "gallery", "_build"} & set(page.parts)]
OF_A_COMMIT = re.compile(r"^commit: `?[0-9a-f]{7,40}`?", re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
PROGRAM = re.compile(r"^(?:tllib-ancon|.*-m (?:-- )?tllib_ancon) +(?=[a-zA-Z]|--)")
PLAN = re.compile(r"^(extends = .*?)^(?:```|TOML)", re.DOTALL | re.MULTILINE)
NO_VALUES = {"…", "...", ".."}


def texts():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if not OF_A_COMMIT.search(text):
            yield page.relative_to(ROOT), text


def commands():
    """Page and words of each command that a page shows, but for those that read a variable of the shell."""
    for page, text in texts():
        blocks = "".join(SHELL.findall(text)).replace("\\\n", " ").splitlines()
        sentences = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for line in [*blocks, *INLINE.findall(sentences)]:
            program = PROGRAM.match(line.strip())
            if program and "$" not in line:
                command = re.split(r"[;|>]|&&", line.strip()[program.end() :])[0]
                yield page, [word for word in shlex.split(command, comments=True) if word not in NO_VALUES]


def accept(words):
    """Parse a command up to its configuration, without the files that it names."""
    if words in ([], *([name] for name in COMMANDS)):
        return
    args = parse(words)
    if args.chosen != "script":
        args.config = None
        args.command.configured(args)


def test_every_documented_command_is_one():
    shown = list(commands())
    assert len(shown) > 60
    failures = []
    for page, words in shown:
        try:
            accept(words)
        except SystemExit as end:
            if end.code:
                failures.append(f"{page}: {' '.join(words)}: exit status {end.code}")
        except Exception as error:
            failures.append(f"{page}: {' '.join(words)}: {error}")
    assert failures == []


def test_every_written_plan_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    plans = [plan for _, text in texts() for plan in PLAN.findall(text)]
    assert len(plans) > 2
    for plan in plans:
        path = tmp_path / "plan.toml"
        path.write_text(plan)
        assert all(run.config is not None for run in load(str(path)).runs("ROOT", tmp_path))
