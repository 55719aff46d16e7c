"""Bad input that is met while a command works, in files and in paths; what words tell stands in ``tests/doors``."""

import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REFUSED
from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import main
from tllib_ancon.runtime.errors import UserError

FILLED = {
    "NESTED": "[" * 5000,
    "DOTTED": ".".join("a" * 3000),
    "DIGITS": "9" * 5000,
    "HUGE": "9" * 400,
}
PLAN = """
title = "t"
dataset = "ImageList"
pairs = ["bright-dark"]
methods = ["ancon"]
# more
[source.erm]
epochs = 1
"""


def filled(text: str) -> str:
    for name, long in FILLED.items():
        text = text.replace(name, long)
    return text


def unlabelled(root: Path) -> None:
    lists = root / "image_list" / "bright.txt"
    lists.write_text("".join(line.rsplit(" ", 1)[0] + "\n" for line in lists.read_text().splitlines()))


def add(name: str, text: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        with open(root / name, "a") as file:
            file.write(text)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add("image_list/classes.txt", "black\n"), "3 classes.*4|4 classes.*3"),
        (lambda root: (root / "image_list" / "dark.txt").write_text("\n"), "dark.txt: the list is empty"),
        (add("image_list/dark.txt", "dark/red/000.png 3\n"), "dark.txt, line 49: label 3 is out of range"),
        (lambda root: (root / "dark/red/003.png").write_bytes(b"none"), "dark/red/003.png: cannot be decoded"),
        (lambda root: shutil.rmtree(root), "is not a folder"),
    ],
)
def test_images_that_cannot_be_adapted_to(copied: Path, adapt, refused, change, message: str) -> None:
    change(copied)
    for workers in ("0", "1") if "decoded" in message else ("0",):
        shown = refused(adapt("run", "-j", workers, root=copied))
        assert re.search(message, shown), shown


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (unlabelled, (), "no labels"),
        (unlabelled, ("--method", "cdan", "-t", "dark", "-i", "2"), "no labels"),
        (lambda root: None, ("-b", "1"), "batch-norm"),
    ],
)
def test_pretrain_refuses(copied: Path, tmp_path: Path, refused, change, more: tuple[str, ...], message: str) -> None:
    change(copied)
    words = ["pretrain", *small_arguments(copied), *more, "--log", str(tmp_path / "run")]
    assert message in refused(words)
    assert not (tmp_path / "run" / "checkpoints" / "best.pth").exists()


def test_a_bug_still_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tllib_ancon.cli.main.parse", lambda words: int("a bug of ours"))
    with pytest.raises(ValueError, match="a bug of ours"):
        main(["adapt"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            'Caught UserError in DataLoader worker process 0.\n  File "images.py", line 31, in load_image\n'
            "tllib_ancon.runtime.errors.UserError: image x.jpg: cannot be decoded (two\n  lines)\n",
            "image x.jpg: cannot be decoded (two lines)",
        ),
        ("checkpoint x.pth cannot be read (first\n\n\tsecond)\n", "checkpoint x.pth cannot be read (first second)"),
    ],
)
def test_an_error_of_many_lines_is_shown_in_one_with_its_file(text: str, shown: str, monkeypatch, refused) -> None:
    def fail(words: list[str]) -> None:
        raise UserError(text)

    monkeypatch.setattr("tllib_ancon.cli.main.parse", fail)
    assert refused(["adapt"]) == f"tllib-ancon: error: {shown}"


@pytest.mark.parametrize("words", REFUSED["paths"], ids=" ".join)
def test_a_path_that_the_system_refuses(
    domains: Path, source_checkpoint: Path, tmp_path: Path, monkeypatch, refused, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("loop", "loop.toml"):
        Path(name).symlink_to(name)
    full = [word for part in words for word in (small_arguments(domains) if part == "SMALL" else [part])]
    for path in ("x" * 300, "loop", "loop/below"):
        given = {"PATH": path, "ROOT": str(domains), "CHECKPOINT": str(source_checkpoint)}
        line = full
        for name, value in given.items():
            line = [word.replace(name, value) for word in line]
        refused(line)


@pytest.mark.parametrize(("text", "message"), REFUSED["files of settings"])
def test_a_file_of_settings(adapt, tmp_path: Path, refused, text: str, message: str) -> None:
    (tmp_path / "c.toml").write_bytes(filled(text).encode(errors="surrogateescape"))
    words = adapt("run", "--config", str(tmp_path / "c.toml"))
    del words[words.index("--epochs") : words.index("--log")]
    shown = refused(words)
    assert message in shown
    assert len(shown) < 1000
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("old", "new", "message"), REFUSED["plans"])
def test_a_plan(domains: Path, tmp_path: Path, monkeypatch, refused, old: str, new: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.toml").write_text(PLAN.replace(old, filled(new)))
    words = ["benchmark", "p.toml", str(domains), "--out", "out"]
    assert message in refused([*words, "--print-commands"])
    refused(words)
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]


def test_runs_of_a_plan_lie_in_its_folder_whatever_its_variants_are_called(domains, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("p.toml").write_text(PLAN.replace("# more", 'variants = [{class-prior = "../../../../evil"}]'))
    assert main(["benchmark", "p.toml", str(domains), "--out", "out", "--print-commands"]) == 0
    assert "--log out/erm/bright-dark/ancon,class_prior=.._.._.._.._evil-seed0" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["torch-export", "state-dict"])
def test_an_export_without_room_keeps_what_was_there(source_checkpoint, tmp_path, refused, form: str) -> None:
    (tmp_path / "model.pt").write_bytes(b"before")
    words = ["export", str(source_checkpoint), "--format", form, "--out", str(tmp_path / "model.pt")]
    assert "pass --overwrite" in refused(words)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        assert "model.pt could not be written" in refused([*words, "--overwrite"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("model.pt", b"before")]


@pytest.mark.parametrize("content", ["[" * 100_000, "[]"])
def test_a_checkpoint_in_a_run_whose_record_is_damaged(
    domains, source_checkpoint, tmp_path, adapt, refused, content: str
) -> None:
    (tmp_path / "checkpoints").mkdir()
    copy = Path(shutil.copy(source_checkpoint, tmp_path / "checkpoints" / "best.pth"))
    (tmp_path / "config.json").write_text(content)
    for words in (["predict", str(domains), "--checkpoint"], ["export", "--out", str(tmp_path / "out.pt")]):
        assert "config.json" in refused([*words, str(tmp_path)])
    assert "config.json" in refused(adapt("run", checkpoint=copy))


def test_the_source_of_an_adaptation_is_a_domain_but_needs_no_image(copied: Path, adapt, refused) -> None:
    shutil.rmtree(copied / "bright")
    words = adapt("run", root=copied)
    misspelt = ["brihgt" if word == "bright" else word for word in words]
    assert "source domain of ImageList: 'brihgt'; did you mean 'bright'" in refused(misspelt)
    assert main(words) == 0
