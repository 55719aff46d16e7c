"""Help texts: short at first, complete on request, and without torch."""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tllib_ancon.cli import stages
from tllib_ancon.cli.flags import Flags, help_text
from tllib_ancon.cli.main import COMMANDS, main
from tllib_ancon.cli.parser import Parser, shown_flags
from tllib_ancon.cli.script import second_stage_parser
from tllib_ancon.config import (
    CRITERIA_OF_AN_EPOCH,
    AdaptConfig,
    CertifyConfig,
    ExportConfig,
    PredictionsConfig,
    PretrainConfig,
)
from tllib_ancon.paper.engines import EngineConfig
from tllib_ancon.selection import CRITERIA
from tllib_ancon.settings import Settings, redefined, setting, settings_of, types_of

LISTED_AT_FIRST = 16
"""Lines of arguments at most, the two of ``--help`` aside."""


def parser_of(command: str) -> Parser:
    parser = Parser(prog=f"tllib-ancon {command}")
    importlib.import_module(f"tllib_ancon.cli.{command}").add_arguments(parser)
    return parser


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.dest != argparse.SUPPRESS]


@dataclass(frozen=True)
class Boxes(Settings):
    size: float = setting(1.0, "side of a box in metres", above=0, at_most=10, common=True, group="boxes")
    lid: bool = setting(False, "close the box", group="boxes")
    round: bool = setting(True, "round its corners", group="boxes")
    name: str | None = setting(None, "what is written on it", group="boxes")
    numbers: tuple[int, ...] = setting((), "numbers on it; by default those of the shop", group="boxes")


@pytest.fixture
def boxes() -> Parser:
    parser = Parser(prog="box")
    Flags(settings_of(Boxes), types_of(Boxes), needed=("name",)).add(parser)
    return parser


def test_the_short_text_has_what_is_common_or_needed(boxes: Parser) -> None:
    shown = boxes.format_help()
    assert "side of a box in metres (above 0 and at most 10; default: 1)" in " ".join(shown.split())
    assert "--name NAME" in shown
    assert "written on it (needed)" in shown
    assert "--help-all" in shown
    assert "--lid" not in shown
    assert "--round" not in shown
    assert shown.startswith("usage: box --name NAME [flags]\n")


def test_the_full_text_has_every_flag_and_switches_in_the_direction_that_changes_them(boxes: Parser) -> None:
    shown = " ".join(boxes.format_help(full=True).split())
    assert "--size X side of" in shown
    assert "--lid close the box (default: off)" in shown
    assert "--no-round round its corners (default: on)" in shown
    assert "--no-lid" not in shown
    assert "--numbers N [N ...] numbers on it; by default those of the shop" in shown
    assert "the shop (" not in shown


def test_both_directions_of_a_switch_are_understood(boxes: Parser) -> None:
    assert boxes.parse_args(["--lid", "--no-round"]) == argparse.Namespace(lid=True, round=False)
    assert boxes.parse_args(["--no-lid", "--round"]) == argparse.Namespace(lid=False, round=True)


def test_a_flag_with_several_spellings_shows_its_value_once() -> None:
    assert "-b, --batch-size B\n" in parser_of("pretrain").format_help().replace("  ", "\n")


def test_without_further_flags_there_is_no_word_of_the_full_text() -> None:
    assert "--help-all" not in parser_of("demo").format_help()
    assert "--help-all" in parser_of("adapt").format_help()


def test_a_setting_is_redefined_for_a_subclass() -> None:
    @dataclass(frozen=True)
    class Crates(Boxes):
        size: float = redefined(Boxes, "size", 2.0, help="side of a crate in metres")

    assert help_text(settings_of(Crates)["size"]) == "side of a crate in metres (above 0 and at most 10; default: 2)"
    assert help_text(settings_of(Boxes)["size"]).endswith("default: 1)")
    assert Crates().size == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_the_short_text_of_every_command_is_short_and_the_full_one_complete(command: str, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    short = capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main([command, "--help-all"])
    assert stop.value.code == 0
    full = capsys.readouterr().out
    parser = parser_of(command)
    listed = [action for action in arguments(parser) if action not in parser.further]
    assert len(listed) <= LISTED_AT_FIRST
    assert len(short.splitlines()) < 75
    usage = short.partition("\n\n")[0]
    assert len(usage) < 200
    assert usage == full.partition("\n\n")[0]
    words = re.findall(r"(?<![\w-])--?[a-z][\w-]*", full)
    assert [flag for action in arguments(parser) for flag in shown_flags(action) if flag not in words] == []


@pytest.mark.parametrize("parser", [*map(parser_of, COMMANDS), second_stage_parser()], ids=[*COMMANDS, "after script"])
def test_every_flag_names_its_default_and_every_number_its_range(parser: Parser) -> None:
    plain = {"config", "arguments", "script"}
    for action in arguments(parser):
        if action.dest in plain:
            continue
        assert re.search(r"default|needed", str(action.help)), action
        if action.metavar in ("N", "X", "PX", "DEG", "B", "K", "D") and "norm" not in action.dest:
            assert re.search(r"at least|above|at most|below", str(action.help)), action


def test_defaults_are_those_of_the_command() -> None:
    assert "default: 30)" in help_text(settings_of(AdaptConfig)["epochs"])
    assert "default: erm 50, cdan 20, mdd 20)" in help_text(settings_of(PretrainConfig)["epochs"])
    assert "default: 0.5 1)" in help_text(settings_of(AdaptConfig)["scale"])
    assert "default: 0.08 1)" in help_text(settings_of(PretrainConfig)["scale"])
    for method, epochs in (("erm", 50), ("cdan", 20), ("mdd", 20)):
        assert PretrainConfig(method=method).epochs == epochs
    assert AdaptConfig().scale == (0.5, 1.0)
    assert PretrainConfig(scale=None).scale == (0.08, 1.0)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_text_needs_no_torch(command: str) -> None:
    code = (
        "import sys\nfrom tllib_ancon.cli.main import main\n"
        f"try:\n    main([{command!r}, '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = [name for name in ('torch', 'timm', 'matplotlib', 'pandas') if name in sys.modules]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_usage_line_names_what_is_needed(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["adapt", "--help"])
    assert capsys.readouterr().out.startswith(
        "usage: tllib-ancon adapt ROOT -d DATA -t TARGET --checkpoint FILE [flags]\n"
    )
    assert stages.adapt_flags().needed == ("root", "data", "target", "checkpoint")


def test_help_after_the_arguments_of_a_script(tmp_path, capsys) -> None:
    for flag, further in (("--help", False), ("--help-all", True)):
        with pytest.raises(SystemExit):
            main(["script", str(tmp_path / "cdan.py"), "--method", "ancon", flag])
        shown = capsys.readouterr().out
        assert "--adapt-epochs N" in shown
        assert ("--adapt-momentum X" in shown) == further


def test_the_criteria_that_a_run_records() -> None:
    assert tuple(CRITERIA) == CRITERIA_OF_AN_EPOCH


def test_every_class_of_settings_is_among_the_commands() -> None:
    shown = {word for command in COMMANDS for action in arguments(parser_of(command)) for word in action.option_strings}
    for owner in (PretrainConfig, AdaptConfig, PredictionsConfig, CertifyConfig, ExportConfig, EngineConfig):
        names = set(settings_of(owner)) - {"root", "run", "source"}
        assert {name for name in names if f"--{name.replace('_', '-')}" not in shown} == set()
