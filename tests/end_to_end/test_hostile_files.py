"""Files that would run code are refused at every flag that takes a file, and do not run."""

import ast
import pickle
from pathlib import Path

import pytest
import torch

import tllib_ancon
from tests.domains_on_disk import small_arguments
from tests.training.test_checkpointing import Bomb
from tllib_ancon.cli.main import COMMANDS, parser_of

READ_FLAGS = {
    *((command, "--checkpoint") for command in ("adapt", "check", "evaluate", "predict")),
    *((command, "--pretrained-weights") for command in ("adapt", "check", "evaluate", "predict", "pretrain")),
}
"""Flags with a file that is loaded."""
OTHER_FLAGS = {
    *((command, "--subset") for command in ("adapt", "assess", "check", "evaluate", "predict", "pretrain")),
    *((command, "--class-names") for command in ("adapt", "assess", "check", "evaluate", "predict")),  # a text
    *((command, "--config") for command in set(COMMANDS) - {"benchmark", "script"}),
    ("adapt", "--class-prior"),  # numbers, a text
    ("assess", "--json"),  # written
    ("assess", "--questions"),
    *((command, "--answers") for command in ("adapt", "assess", "certify")),  # texts
    ("certify", "--checkpoint"),  # of the run that is certified, by the function that reads adapt's
    ("certify", "--labels"),  # a text
    ("certify", "--questions"),  # written
    ("check", "--json"),
    ("evaluate", "--json"),
    ("evaluate", "--out"),
    ("export", "--out"),
    ("predict", "--out"),
}
PASS_ON = {"benchmark"}
"""Commands whose files are flags of the commands that they start."""


def write_bomb(path: Path, victim: Path, form: str) -> None:
    bomb = {"backbone.weight": Bomb(victim)}
    if form == "torch":
        torch.save(bomb, path)
    elif form == "old torch":
        torch.save(bomb, path, _use_new_zipfile_serialization=False)
    else:
        path.write_bytes(pickle.dumps(bomb))


def file_flags(command: str) -> set[tuple[str, str]]:
    """Options of a command whose value is a file, by the word its help shows."""
    flags = (action.option_strings for action in parser_of(command)._actions if action.metavar == "FILE")
    return {(command, strings[-1]) for strings in flags if strings}


def test_every_flag_with_a_file_is_tested_here() -> None:
    found = {flag for command in set(COMMANDS) - PASS_ON for flag in file_flags(command)}
    assert found - OTHER_FLAGS == READ_FLAGS


@pytest.mark.parametrize(("command", "flag"), sorted(READ_FLAGS))
def test_a_pickle_is_refused_and_does_not_run(domains, tmp_path, refused, command: str, flag: str) -> None:
    victim = tmp_path / "victim"
    words = small_arguments(domains)
    if command in ("check", "evaluate", "predict"):
        words = [word for word in words if word not in ("-s", "bright", "--quiet")]
    words += [] if command == "pretrain" else ["-t", "dark"]
    if flag != "--checkpoint" and command in ("adapt", "check", "evaluate", "predict"):
        words += ["--checkpoint", "imagenet", "-a", "resnet18"]
    out = {"check": [], "evaluate": [], "predict": ["--out", str(tmp_path / "out.csv")]}
    words += out.get(command, ["--log", str(tmp_path / "run")])
    for name, form in (("bomb.pth", "torch"), ("bomb.pth", "old torch"), ("bomb.safetensors", "pickle")):
        write_bomb(tmp_path / name, victim, form)
        assert name in refused([command, *words, flag, str(tmp_path / name)])
        assert not victim.exists()


@pytest.mark.parametrize("option", ["checkpoint_path={}", "pretrained_cfg_overlay={{'file': '{}'}}"])
def test_an_option_of_a_network_reads_no_file(domains, tmp_path, refused, option: str) -> None:
    victim, log = tmp_path / "victim", tmp_path / "run"
    write_bomb(tmp_path / "bomb.pth", victim, "torch")
    words = ["-a", "test_resnet", "--arch-option", option.format(tmp_path / "bomb.pth"), "--log", str(log)]
    shown = refused(["pretrain", *small_arguments(domains), *words])
    assert "--arch-option" in shown
    assert "--pretrained-weights" in shown
    assert not victim.exists()


FORBIDDEN = {
    *("eval", "exec", "compile", "os.system", "marshal.loads", "pickle.load", "pickle.loads"),
    *("tarfile.open", "shutil.unpack_archive", "runpy.run_path"),
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
