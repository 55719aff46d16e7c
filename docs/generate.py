"""Pages of the site that are made from the code: the commands from their flags, the settings from their classes."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from tllib_ancon import config, methods
from tllib_ancon.cli.flags import help_text
from tllib_ancon.cli.main import COMMANDS, parser_of
from tllib_ancon.cli.script import second_stage_parser
from tllib_ancon.settings import choices_of, described, settings_of

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
CONFIGURATIONS = (
    "PretrainConfig",
    "AdaptConfig",
    "PredictConfig",
    "PredictionsConfig",
    "CertifyConfig",
    "ExportConfig",
)


def write(folder: Path) -> None:
    """Write every generated page below this folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "commands.md").write_text(commands())
    (folder / "settings.md").write_text(settings())
    shutil.copytree(RESULTS, folder / "results")


def link_results(app: Any, page: str, source: list[str]) -> None:
    """In the site the tables of ``benchmarks/results`` are pages of its own."""
    source[0] = source[0].replace("](../benchmarks/results/", "](generated/results/")


def commands() -> str:
    """Every command with every flag."""
    parts = [
        "# Commands",
        "After this page you know every flag of every command. `--help` shows the few that people set first, "
        "`--help-all` those of this page, which is made from the settings themselves. `--config` gives "
        "the same settings from a TOML file; a flag overrides its entry. A switch such as `--skip-corrupt` has an "
        "opposite, `--no-skip-corrupt`, which overrides a file that turns it on.",
    ]
    for name, purpose in COMMANDS.items():
        parser = parser_of(name)
        usage = " ".join(parser.format_usage().split()).replace("usage: ", "")
        parts += [
            f"## {name}",
            f"{escaped(purpose[0].upper() + purpose[1:])}.",
            f"```text\n{usage}\n```",
            *flags_of(parser),
        ]
        if parser.epilog:
            parts.append(escaped(parser.epilog))
        if name == "script":
            parts += ["Flags of the adaptation, from `--method` on:", *flags_of(second_stage_parser())]
    return "\n\n".join(parts) + "\n"


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """A table for each group of a parser's arguments."""
    tables = []
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            if argparse.SUPPRESS in (action.dest, action.help):  # --help, and the switch that changes nothing
                continue
            words = ", ".join(f"`{word}`" for word in action.option_strings) or f"`{action.metavar or action.dest}`"
            value = action.metavar if action.option_strings and action.nargs != 0 else None
            shown = " ".join(value) if isinstance(value, tuple) else value or ""
            rows.append((words, f"`{shown}`" if shown else "", escaped(str(action.help).replace("%%", "%"))))
        if rows:
            tables += [f"**{group.title}**", table(("argument", "value", "meaning, range, default"), rows)]
    return tables


def settings() -> str:
    """Every class of settings, and those of every method."""
    parts = [
        "# Settings",
        "After this page you know every setting that `adapt(...)`, `pretrain(...)` and `predict(...)` take by keyword, "
        "a TOML file by name, and a command as a flag (`batch_size` is `--batch-size`). No number may be `nan` or "
        "infinite.",
    ]
    for name in CONFIGURATIONS:
        owner = getattr(config, name)
        summary = escaped(" ".join((owner.__doc__ or "").split("\n\n")[0].split()))
        parts += [f"## {name}", summary, settings_table(settings_of(owner))]
    parts += ["## Settings of methods", "Which of them a method reads; others are refused."]
    for name in methods.names():
        parts += [f"### `{name}`", settings_table(methods.settings(name))]
    return "\n\n".join(parts) + "\n"


def settings_table(fields: Mapping[str, FieldInfo]) -> str:
    if not fields:
        return "It has no settings."
    rows = []
    for name, field in fields.items():
        kind, choices = described(field.annotation), choices_of(field)
        kind = kind.replace("a text", " or ".join(f"`{choice}`" for choice in choices)) if choices else kind
        shown = "required" if field.is_required() else f"`{field.default!r}`"
        rows.append((f"`{name}`", escaped(kind), shown, escaped(help_text(field))))
    return table(("setting", "type", "default", "meaning and range"), rows)


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def escaped(text: str) -> str:
    """As Markdown shows it unchanged."""
    for mark in "\\<>*_|$[]":
        text = text.replace(mark, "\\" + mark)
    return text
