"""Files that would run code are refused at every flag that takes a file, and do not run."""

from __future__ import annotations

import argparse
import ast
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tllib_ancon
from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import COMMANDS, main
from tllib_ancon.errors import UserError

READ_FLAGS = {
    *((command, "--checkpoint") for command in ("adapt", "evaluate", "predict")),
    *((command, "--pretrained-weights") for command in ("adapt", "evaluate", "predict", "pretrain", "run")),
}
"""Flags with a file that is loaded."""
OTHER_FLAGS = {
    *((command, "--subset") for command in ("adapt", "evaluate", "predict", "pretrain", "run")),  # a list, a text
    *((command, "--config") for command in ("adapt", "certify", "evaluate", "export", "predict", "pretrain", "run")),
    ("adapt", "--class-prior"),  # numbers, a text
    ("run", "--class-prior"),
    ("run", "--adapt-class-prior"),
    ("certify", "--checkpoint"),  # of the run that is certified, by the function that reads adapt's
    ("certify", "--answers"),  # texts
    ("certify", "--labels"),
    ("certify", "--questions"),  # written
    ("evaluate", "--json"),
    ("evaluate", "--out"),
    ("export", "--out"),
    ("predict", "--out"),
}
PASS_ON = {"benchmark"}
"""Commands whose files are flags of the commands that they start."""


class Bomb:
    def __init__(self, victim: Path):
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


def write_bomb(path: Path, victim: Path, form: str) -> None:
    bomb = {"backbone.weight": Bomb(victim)}
    if form == "torch":
        torch.save(bomb, path)
    elif form == "old torch":
        torch.save(bomb, path, _use_new_zipfile_serialization=False)
    else:
        path.write_bytes(pickle.dumps(bomb))


def test_the_bomb_works(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    pickle.loads(pickle.dumps(Bomb(victim)))
    assert victim.exists()


def file_flags(command: str, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Options of a command whose value is a file, by the word its help shows."""
    seen: list[argparse.Action] = []

    def parse(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
        (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        seen.extend(commands.choices[command]._actions)
        return argparse.Namespace(module=argparse.Namespace(run=lambda args: 0)), []

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", parse)
        assert main([command]) == 0
    flags = (action.option_strings for action in seen if action.metavar == "FILE")
    return {(command, strings[-1]) for strings in flags if strings}


def test_every_flag_with_a_file_is_tested_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {flag for command in set(COMMANDS) - PASS_ON for flag in file_flags(command, monkeypatch)}
    assert found - OTHER_FLAGS == READ_FLAGS


@pytest.mark.parametrize("form", ["torch", "old torch", "pickle"])
@pytest.mark.parametrize("name", ["bomb.pth", "bomb.safetensors"])
@pytest.mark.parametrize(("command", "flag"), sorted(READ_FLAGS))
def test_a_pickle_is_refused_and_does_not_run(
    domains, source_checkpoint, tmp_path, capsys, command: str, flag: str, name: str, form: str
) -> None:
    victim = tmp_path / "victim"
    write_bomb(tmp_path / name, victim, form)
    words = small_arguments(domains)
    if command in ("evaluate", "predict"):
        words = [word for word in words if word not in ("-s", "bright", "--quiet")]
    words += [] if command == "pretrain" else ["-t", "dark"]
    words += ["--pretrain", "erm", "--adapt-batch-size", "8"] if command == "run" else []
    if flag != "--checkpoint" and command in ("adapt", "evaluate", "predict"):
        words += ["--checkpoint", "imagenet", "-a", "resnet18"]
    words += {"evaluate": [], "predict": ["--out", str(tmp_path / "out.csv")]}.get(
        command, ["--log", str(tmp_path / "run")]
    )
    assert main([command, *words, flag, str(tmp_path / name)]) == 2
    shown = capsys.readouterr().err
    assert name in shown
    assert len(shown.strip().splitlines()) == 1
    assert not victim.exists()


@pytest.mark.parametrize("option", ["checkpoint_path={}", "pretrained_cfg_overlay={{'file': '{}'}}", "act_layer={}"])
def test_an_option_of_a_network_reads_no_file(domains, tmp_path, capsys, option: str) -> None:
    victim, log = tmp_path / "victim", tmp_path / "run"
    write_bomb(tmp_path / "bomb.pth", victim, "torch")
    words = ["-a", "test_resnet", "--arch-option", option.format(tmp_path / "bomb.pth"), "--log", str(log)]
    assert main(["pretrain", *small_arguments(domains), *words]) == 2
    (shown,) = capsys.readouterr().err.strip().splitlines()
    assert "--arch-option" in shown
    assert "--pretrained-weights" in shown
    assert not victim.exists()


FORBIDDEN = {
    "pickle.load",
    "pickle.loads",
    "eval",
    "exec",
    "compile",
    "os.system",
    "marshal.loads",
    "tarfile.open",
    "shutil.unpack_archive",
    "runpy.run_path",
}
MAY_RUN_A_SCRIPT = {"toolkit/script.py"}
"""``script`` runs the file that the person names."""


def test_nothing_in_the_package_runs_or_unpacks_what_a_file_says() -> None:
    root = Path(tllib_ancon.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name, keywords = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
                unsafe_load = name == "torch.load" and keywords.get("weights_only") != "True"
                unsafe_array = name in ("np.load", "numpy.load") and keywords.get("allow_pickle") != "False"
                shell = keywords.get("shell") == "True" or name == "torch.hub.load"
                unpacks = isinstance(node.func, ast.Attribute) and node.func.attr in ("extract", "extractall")
                forbidden = unpacks or (name in FORBIDDEN and path.relative_to(root).as_posix() not in MAY_RUN_A_SCRIPT)
                if unsafe_load or unsafe_array or shell or forbidden:
                    found.append(f"{path.relative_to(root)}:{node.lineno} {name}")
    assert found == []


def test_a_cache_of_objects_is_refused_and_does_not_run(domains, source_checkpoint, tmp_path, capsys) -> None:
    victim, cache = tmp_path / "victim", tmp_path / "cache"
    words = ["-t", "dark", "--checkpoint", str(source_checkpoint), "--epochs", "1", "--cache", str(cache)]
    assert main(["adapt", *small_arguments(domains), *words, "--log", str(tmp_path / "one")]) == 0
    arrays = sorted(cache.rglob("*.npy"))
    assert arrays
    for path in arrays:
        np.save(path, np.array([Bomb(victim)], dtype=object), allow_pickle=True)
    assert main(["adapt", *small_arguments(domains), *words, "--log", str(tmp_path / "two")]) == 2
    assert "damaged" in capsys.readouterr().err
    assert not victim.exists()


WORKER = """Caught UserError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "images.py", line 31, in load_image
ValueError: bad
tllib_ancon.errors.UserError: image x.jpg: cannot be decoded (two
  lines)
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (WORKER, "image x.jpg: cannot be decoded (two lines)"),
        ("checkpoint x.pth cannot be read (first\n\n\tsecond)\n", "checkpoint x.pth cannot be read (first second)"),
    ],
)
def test_an_error_of_many_lines_is_shown_in_one_with_its_file(text: str, shown: str, monkeypatch, capsys) -> None:
    def fail(words: list[str]) -> None:
        raise UserError(text)

    monkeypatch.setattr("tllib_ancon.cli.main.parse", fail)
    assert main(["adapt"]) == 2
    assert capsys.readouterr().err == f"tllib-ancon: error: {shown}\n"
