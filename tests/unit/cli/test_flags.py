"""Help texts: one default for each flag, words that a command line takes, and every method and layout."""

import argparse
import re

import pytest

from tllib_ancon import methods
from tllib_ancon.cli.main import COMMANDS, parser_of
from tllib_ancon.cli.script import second_stage_parser
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import settings_of

PARSERS = {**{name: parser_of(name) for name in COMMANDS}, "script --method": second_stage_parser()}


def shown(parser):
    """Help text of each argument that the parser shows, by its longest flag or its name."""
    actions = [action for action in parser.arguments() if action.help not in (None, argparse.SUPPRESS)]
    return {max([*action.option_strings, action.dest], key=len): str(action.help) for action in actions}


@pytest.mark.parametrize("name", PARSERS)
def test_help_names_flags_that_the_command_has_and_nothing_as_python_spells_it(name):
    parser = PARSERS[name]
    flags = {word for action in parser.arguments() for word in action.option_strings}
    spelled_as_python = {*settings_of(AdaptConfig), *methods.settings()}
    for flag, text in shown(parser).items():
        assert "`" not in text, flag
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) - flags == set() or flag == "arguments", flag
        assert {setting for setting in re.findall(r"\b(\w+)=", text) if setting in spelled_as_python} == set(), flag
