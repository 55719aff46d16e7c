"""A file that would run code is refused and does not run; one that is damaged gives one line or an answer."""

import pickle
import shutil

import pytest
import torch

from tests.support.bomb import Bomb
from tests.support.domains_on_disk import KEPT, adapt_arguments, small_arguments
from tllib_ancon.cli.main import main

READ_FLAGS = [
    *((command, "--checkpoint") for command in ("adapt", "check", "evaluate", "predict")),
    ("pretrain", "--pretrained-weights"),
]
"""Flags with a file that is loaded."""


def write_bomb(path, victim, form):
    bomb = {"backbone.weight": Bomb(victim)}
    if form == "torch":
        torch.save(bomb, path)
    elif form == "old torch":
        torch.save(bomb, path, _use_new_zipfile_serialization=False)
    else:
        path.write_bytes(pickle.dumps(bomb))


def words_of(command, flag, domains, out):
    """A command that would end well with a good file for the flag."""
    words = small_arguments(domains)
    if command in ("check", "evaluate", "predict"):
        words = [word for word in words if word not in ("-s", "bright", "--quiet", "--train-resizing=res.")]
    if command != "pretrain":
        words += ["-t", "dark"]
        if flag != "--checkpoint":
            words += ["--checkpoint", "imagenet", "-a", "resnet18"]
    if command in ("adapt", "pretrain"):
        words += ["--log", str(out / "run")]
    if command == "predict":
        words += ["--out", str(out / "out.csv")]
    return [command, *words]


@pytest.mark.parametrize(("command", "flag"), READ_FLAGS)
def test_a_pickle_is_refused_and_does_not_run(domains, tmp_path, refused, command, flag):
    victim = tmp_path / "victim"
    words = words_of(command, flag, domains, tmp_path)
    for name, form in (("bomb.pth", "torch"), ("bomb.pth", "old torch"), ("bomb.safetensors", "pickle")):
        write_bomb(tmp_path / name, victim, form)
        assert name in refused([*words, flag, str(tmp_path / name)])
        assert not victim.exists()


DEPTH = 100_000
DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "another type": lambda content: pickle.dumps([1, 2]),
    "nested": lambda content: b"[" * DEPTH + b"]" * DEPTH,
    "numbers as texts": lambda content: content.replace(b": 1", b': "x"'),
}
FILES = (
    *("run/config.json", "run/result.json", "run/metrics.jsonl", "run/checkpoints/best.pth"),
    *("domains/image_list/dark.txt", "domains/image_list/classes.txt", "domains/dark/red/003.png"),
)


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_one_line_or_an_answer(file, kept, copied, source_checkpoint, tmp_path, capsys):
    run = tmp_path / "run"
    without_epochs = [
        word for word in small_arguments(copied) if word not in ("-s", "bright", "--quiet", "--train-resizing=res.")
    ]
    selected = ["-t", "dark", "--checkpoint", str(run)]
    commands = [
        adapt_arguments(copied, source_checkpoint, run, *KEPT),
        ["predict", *without_epochs, *selected, "--overwrite", "--out", str(tmp_path / "out.csv")],
    ]
    shutil.copytree(kept, run)
    whole = (tmp_path / file).read_bytes()
    shutil.rmtree(run)
    for damage in DAMAGES.values():
        for words in commands:
            shutil.copytree(kept, run, dirs_exist_ok=True)
            (tmp_path / file).write_bytes(damage(whole))
            capsys.readouterr()
            status = main(words)
            errors = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
            assert (status, len(errors)) in ((0, 0), (2, 1)), words
            (tmp_path / file).write_bytes(whole)
            shutil.rmtree(run)
