"""Pages of the site that are made from the code: the commands from their flags, the settings from their classes."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from pydantic.fields import FieldInfo

from tllib_ancon import methods
from tllib_ancon.cli.flags import defaults_in_words, help_text
from tllib_ancon.cli.main import COMMANDS, parser_of
from tllib_ancon.cli.parser import Parser
from tllib_ancon.cli.script import second_stage_parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.config.check import CheckConfig
from tllib_ancon.config.predict import PredictConfig, PredictionsConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import Settings, choices_of, settings_of
from tllib_ancon.laboratory.figures import COLOURS

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ("benchmarks", "tests")
"""Folders whose pages are part of the site, with the tables and figures beside them."""
CONFIGURATIONS: dict[type[Settings], str] = {
    AdaptConfig: "`adapt(...)` and `tllib-ancon adapt`",
    PretrainConfig: "`pretrain(...)` and `tllib-ancon pretrain`",
    PredictConfig: "`tllib-ancon evaluate`",
    PredictionsConfig: "`predict(...)` and `tllib-ancon predict`",
    CheckConfig: "`check(...)` and `tllib-ancon check`",
    CertifyConfig: "`certify(...)` and `tllib-ancon certify`",
}


def write(folder: Path) -> None:
    """Write every generated page below this folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, page in {**commands(), **settings()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(page)
    for name in EVIDENCE:
        for path in sorted((ROOT / name).rglob("*")):
            if path.suffix in (".md", ".csv", ".json", ".png"):
                copy = folder / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)


def link_evidence(app: Any, page: str, source: list[str]) -> None:
    """In the site the folders of evidence lie in ``generated``, one folder deeper; examples are in the gallery."""
    if page.startswith("generated/"):
        source[0] = re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1../", source[0])
        return
    for name in EVIDENCE:
        source[0] = source[0].replace(f"](../{name}/", f"](generated/{name}/")
    source[0] = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](gallery/\1)", source[0])


def add_badge(repository: str, app: Any, page: str, source: list[str]) -> None:
    """Put the badge that opens the notebook in Colab below its link, if the repository lies on GitHub."""
    name = repository.removeprefix("https://github.com/")
    if page == "tutorial" and name != repository:
        address = f"https://colab.research.google.com/github/{name}/blob/main/examples/first_minute.ipynb"
        badge = f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({address})"
        link = "[`first_minute.ipynb`](../examples/first_minute.ipynb)."
        source[0] = source[0].replace(link, f"{link}\n{badge}")


def set_figure_style(settings: Mapping[str, Any], example: str) -> None:
    """Draw the figures of an example in the colours of the package."""
    plt.rcParams["axes.prop_cycle"] = plt.cycler(color=COLOURS)
    plt.rcParams["axes.titlesize"] = plt.rcParams["figure.titlesize"] = 11


def commands() -> dict[str, str]:
    """By file: a page for each command with every flag, and their list."""
    pages = {}
    for name, purpose in COMMANDS.items():
        parser = parser_of(name)
        usage = " ".join(parser.format_usage().split()).replace("usage: ", "")
        parts = [f"# {name}", escaped(purpose[0].upper() + purpose[1:]) + ".", f"```text\n{usage}\n```"]
        parts += flags_of(parser)
        if parser.epilog:
            parts.append(escaped(parser.epilog))
        if name == "script":
            parts += ["Flags of the adaptation, from `--method` on:", *flags_of(second_stage_parser())]
        pages[f"commands/{name}.md"] = "\n\n".join(parts) + "\n"
    remark = (
        "Every flag of every command. `--help` shows the few that people set first, `--help-all` those of these pages, "
        "which are made from the settings themselves. `--config` gives the same settings from a TOML file; a flag "
        "overrides its entry. A switch such as `--skip-corrupt` has an opposite, `--no-skip-corrupt`, which overrides "
        "a file that turns it on."
    )
    purposes = ((f"[`{name}`](commands/{name}.md)", escaped(purpose)) for name, purpose in COMMANDS.items())
    return pages | {"commands.md": index("Commands", remark, table(("command", "what it does"), purposes), pages)}


def index(title: str, remark: str, body: str, pages: Iterable[str]) -> str:
    """The page of a list of pages."""
    entries = "\n".join(page.removesuffix(".md") for page in pages)
    return f"# {title}\n\n{remark}\n\n{body}\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def flags_of(parser: Parser) -> list[str]:
    """A table for each group of a parser's arguments."""
    tables = []
    for title, actions in parser.sections.items():
        rows = []
        for action in actions:
            if argparse.SUPPRESS in (action.dest, action.help):  # --help, and the switch that changes nothing
                continue
            words = ", ".join(f"`{word}`" for word in action.option_strings) or f"`{action.metavar or action.dest}`"
            value = action.metavar if action.option_strings and action.nargs != 0 else None
            shown = " ".join(value) if isinstance(value, tuple) else value
            rows.append((f"{words} `{shown}`" if shown else words, escaped(str(action.help).replace("%%", "%"))))
        if rows:
            tables += [f"## {title}", table(("argument", "meaning, range, default"), rows)]
    return tables


def settings() -> dict[str, str]:
    """By file: a page for each class of settings, one for those of the methods, and their list."""
    pages, rows = {}, []
    for owner, users in CONFIGURATIONS.items():
        name = owner.__name__
        summary = escaped(" ".join((owner.__doc__ or "").split("\n\n")[0].split()))
        body = settings_table(owner, settings_of(owner))
        pages[f"settings/{name}.md"] = f"# {name}\n\n{summary}\n\n{body}\n"
        rows.append((f"[`{name}`](settings/{name}.md)", users))
    parts = ["# Settings of methods", "Which settings a method reads; others are refused."]
    for name in methods.names():
        parts += [f"## `{name}`", settings_table(AdaptConfig, methods.settings(name))]
    pages["settings/methods.md"] = "\n\n".join(parts) + "\n"
    rows.append(("[those of each method](settings/methods.md)", "`adapt(...)` with that `method`"))
    remark = (
        "Python takes every setting by keyword, a TOML file by name, and a command as a flag (`batch_size` is "
        "`--batch-size`). `None` means that it is not set. No number may be `nan` or infinite."
    )
    return pages | {"settings.md": index("Settings", remark, table(("settings", "of"), rows), pages)}


def settings_table(owner: type[Settings], fields: Mapping[str, FieldInfo]) -> str:
    if not fields:
        return "It has no settings."
    rows = []
    defaults = defaults_in_words(owner, fields)
    for name, field in fields.items():
        text = help_text(name, field, defaults[name])
        choices = " or ".join(f"`{choice}`" for choice in choices_of(field))
        rows.append((f"`{name}`", f"{escaped(text)}. {choices}".strip()))
    return table(("setting", "meaning and range"), rows)


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def escaped(text: str) -> str:
    """As Markdown shows it unchanged."""
    for mark in "\\<>*_|$[]":
        text = text.replace(mark, "\\" + mark)
    return text
