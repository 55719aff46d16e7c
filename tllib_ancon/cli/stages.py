"""The flags of ``pretrain`` and ``adapt`` on a command that makes runs of both."""

from __future__ import annotations

import argparse
import copy
import importlib
from typing import Any

from tllib_ancon.paper.plan import Overrides, Run

STAGES = {"source": "pretrain", "adapt": "adapt"}
DECIDED = ("source", "target", "data", "method", "seed", "log", "overwrite")
"""What the plan decides for each run."""


def add_override_arguments(parser: argparse.ArgumentParser) -> None:
    """Every flag of the two commands, for each stage that knows it.

    ``--source-FLAG`` and ``--adapt-FLAG`` set one stage where both know the flag. A flag that is not given leaves no
    trace in the parsed arguments.
    """
    group = parser.add_argument_group("settings in place of the plan's; --source-FLAG and --adapt-FLAG set one stage")
    options = {stage: options_of(stage) for stage in STAGES}
    for name, action in {**options["source"], **options["adapt"]}.items():
        _add(group, action, "both", name, action.option_strings)
        if all(name in known for known in options.values()) and not _has_negation(action):
            for stage in STAGES:
                words = [f"--{stage}-{word[2:]}" for word in action.option_strings if word.startswith("--")]
                _add(group, action, stage, name, words)


def overrides(args: argparse.Namespace) -> Overrides:
    """The settings that were given, by stage."""
    given = {stage: dict(_given(args, stage, known=options_of(stage))) for stage in STAGES}
    return Overrides(**given)


def _given(args: argparse.Namespace, stage: str, known: dict[str, argparse.Action]) -> list[tuple[str, Any]]:
    values = vars(args)
    both = [(name, values[f"both {name}"]) for name in known if f"both {name}" in values]
    return both + [(name, values[f"{stage} {name}"]) for name in known if f"{stage} {name}" in values]


def parsed(run: Run) -> argparse.Namespace:
    """The arguments of a run with every default filled in.

    Raises:
        UserError: settings that its command refuses
    """
    from tllib_ancon.cli.main import parse
    from tllib_ancon.cli.pretrain import resolve

    args = parse(run.words)
    return resolve(args) if run.command == "pretrain" else args


def options_of(stage: str) -> dict[str, argparse.Action]:
    """The flags of a stage that a plan or a person may set, by their first long spelling without dashes."""
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(f"tllib_ancon.cli.{STAGES[stage]}").add_arguments(parser)
    actions = (action for action in parser._actions if action.option_strings and action.dest not in DECIDED)
    return {_name(action): action for action in actions}


def _name(action: argparse.Action) -> str:
    """The first long spelling, without dashes."""
    return next(word for word in action.option_strings if word.startswith("--"))[2:]


def _has_negation(action: argparse.Action) -> bool:
    return isinstance(action, argparse.BooleanOptionalAction)


def _add(group: Any, action: argparse.Action, stage: str, name: str, words: list[str]) -> None:
    added = copy.copy(action)
    added.option_strings = list(words)
    added.dest = f"{stage} {name}"
    added.default = argparse.SUPPRESS
    added.required = False
    added.container = None
    group._add_action(added)
