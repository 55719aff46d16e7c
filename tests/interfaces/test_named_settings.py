"""Every setting that an error or a note names exists, so that its flag exists, too."""

import ast
from inspect import signature
from pathlib import Path

import pytest

import tllib_ancon
from tllib_ancon.cli.main import COMMANDS, parser_of

PACKAGE = Path(tllib_ancon.__file__).parent
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
PUBLIC = [getattr(tllib_ancon, name) for name in tllib_ancon.__all__ if name not in ("UserError", "__version__")]


def settings():
    """Destinations of all flags, and parameters of all public functions and classes."""
    names = set()
    for command in COMMANDS:
        names |= {action.dest for action in parser_of(command)._actions}
    for part in filter(callable, PUBLIC):
        names |= set(signature(part).parameters)
    return names


def parameters(tree):
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def calls_of_named(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "named":
            yield node


@pytest.mark.parametrize("room", ROOMS)
def test_every_setting_that_a_message_names_exists(room):
    known = settings()
    unknown = []
    for path in (PACKAGE / room).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        arguments = [call.args[0] for call in calls_of_named(tree)]
        names = {node.value for node in arguments if isinstance(node, ast.Constant)}
        unknown += [f"{path.name}: {name}" for name in names - known - parameters(tree)]
    assert unknown == []
