"""Every real-valued option of every command refuses NaN and infinity, in one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.domains_on_disk import small_arguments, write_domains
from tests.layouts import write_office_home
from tllib_ancon import methods
from tllib_ancon.cli.main import COMMANDS, main

NO_NUMBERS = ("-inf", "nan", "inf")
OF_A_METHOD = re.compile(r"is an option of (--\w+ )?([\w-]+)")


def options_of(command: str) -> list[argparse.Action]:
    """Every option and argument of a command."""
    seen: list[argparse.Action] = []

    def parse(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
        (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        seen.extend(commands.choices[command]._actions)
        return argparse.Namespace(module=argparse.Namespace(run=lambda args: 0)), []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", parse)
        assert main([command]) == 0
    return seen


def is_real(option: argparse.Action) -> bool:
    """Whether a word such as 0.5 becomes a number."""
    try:
        return callable(option.type) and isinstance(option.type("0.5"), float)
    except ValueError:
        return False


REAL = [(command, option) for command in COMMANDS for option in options_of(command) if is_real(option)]


def flags(option: argparse.Action) -> list[str]:
    return [word for word in option.option_strings if word.startswith("--")]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each command needs at least."""
    folder = tmp_path_factory.mktemp("numbers")
    domains, out = write_domains(folder), str(folder / "out")
    checkpoint = folder / "model.pth"
    checkpoint.write_bytes(b"read by no command here")
    few = ["--pairs", "Ar-Cl", "--seeds", "0", "--methods", *methods.names()]
    target = ["-t", "dark", "--checkpoint", str(checkpoint)]
    return {
        "pretrain": [*small_arguments(domains), "-t", "dark", "--log", out],
        "adapt": [*small_arguments(domains), *target, "--log", out],
        "run": [*small_arguments(domains), "-t", "dark", "--log", out],
        "evaluate": [str(domains), "-d", "ImageList", *target],
        "predict": [str(domains), "-d", "ImageList", *target, "--out", out],
        "certify": [out],
        "benchmark": ["officehome", str(write_office_home(folder / "officehome", images=70)), "--out", out, *few],
    }


def test_there_is_no_command_with_such_options_that_is_not_tested(words) -> None:
    assert {command for command, _ in REAL} == set(words)
    assert len(REAL) > 100


def given(option: argparse.Action, number: str) -> Iterator[list[str]]:
    """The option with this in each place of its value; argparse refuses -inf as an unknown flag unless it
    follows =."""
    count = 1 if option.nargs is None else 3 if option.nargs == "+" else int(option.nargs)
    flag = flags(option)[-1]
    if count == 1:
        yield [f"{flag}={number}"]
        return
    for place in range(count):
        yield [flag, *("0.5" if other != place else number for other in range(count))]


@pytest.mark.parametrize("command", sorted({command for command, _ in REAL}))
def test_nan_and_infinity_are_refused_in_one_line(command: str, words, tmp_path: Path, capsys) -> None:
    def refusal(more: list[str]) -> str:
        assert main([command, *words[command], *more]) == 2, more
        (line,) = capsys.readouterr().err.splitlines()
        return str(line)

    for option in (option for owner, option in REAL if owner == command):
        for number in NO_NUMBERS:
            for more in given(option, number):
                line = refusal(more)
                if more[0] in flags(option) and number == "-inf":
                    continue
                owner = OF_A_METHOD.search(line)
                if owner and command == "benchmark":
                    continue  # the plan chooses how its source models are trained
                if owner:
                    line = refusal([*more, (owner[1] or "--method").strip(), owner[2]])
                assert re.search(rf"({'|'.join(flags(option))}) must be .*got \(?.*{number}", line), (more, line)
    assert not list(tmp_path.iterdir())


def test_a_benchmark_refuses_an_option_that_none_of_its_methods_has(words, capsys) -> None:
    command = ["benchmark", *words["benchmark"][:4], "--methods", "ancon", "--q", "0.5"]
    assert main(command) == 2
    assert "--q is an option of no method of these runs; leave it out" in capsys.readouterr().err
