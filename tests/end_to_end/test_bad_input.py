"""Bad images, models and outputs that a command meets are one line; bad words are in `interfaces`."""

import shutil
from pathlib import Path

import pytest

from tests.domains_on_disk import small_arguments
from tllib_ancon.cli.main import main
from tllib_ancon.runtime.errors import UserError


def without_labels(root):
    listed = root / "image_list" / "bright.txt"
    paths = [line.split()[0] for line in listed.read_text().splitlines()]
    listed.write_text("\n".join(paths) + "\n")


@pytest.mark.parametrize("more", [(), ("--method", "cdan", "-t", "dark", "-i", "2")])
def test_a_source_without_labels_trains_nothing(copied, tmp_path, refused, more):
    without_labels(copied)
    assert "no labels" in refused(["pretrain", *small_arguments(copied), *more, "--log", str(tmp_path / "run")])
    assert not (tmp_path / "run" / "checkpoints" / "best.pth").exists()


def test_a_bug_still_shows_its_traceback(monkeypatch):
    monkeypatch.setattr("tllib_ancon.cli.main.parse", lambda words: int("a bug of ours"))
    with pytest.raises(ValueError, match="a bug of ours"):
        main(["adapt"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("checkpoint x.pth cannot be read (first\n\n\tsecond)\n", "checkpoint x.pth cannot be read (first second)"),
    ],
)
def test_an_error_of_many_lines_is_shown_in_one_with_its_file(text, shown, monkeypatch, refused):
    def fail(words):
        raise UserError(text)

    monkeypatch.setattr("tllib_ancon.cli.main.parse", fail)
    assert refused(["adapt"]) == f"tllib-ancon: error: {shown}"


PLAN = """
title = "t"
dataset = "ImageList"
pairs = ["bright-dark"]
methods = ["ancon"]
variants = [{class-prior = "../../../../evil"}]
[source.erm]
epochs = 1
"""


def test_runs_of_a_plan_lie_in_its_folder_whatever_its_variants_are_called(domains, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("p.toml").write_text(PLAN)
    assert main(["benchmark", "p.toml", str(domains), "--out", "out", "--print-commands"]) == 0
    assert "--log out/erm/bright-dark/ancon,class_prior=.._.._.._.._evil-seed0" in capsys.readouterr().out


def test_the_source_of_an_adaptation_is_a_domain_but_needs_no_image(copied, adapt, refused):
    shutil.rmtree(copied / "bright")
    words = adapt("run", root=copied)
    misspelt = ["brihgt" if word == "bright" else word for word in words]
    assert "source domain of ImageList: 'brihgt'; did you mean 'bright'" in refused(misspelt)
    assert main(words) == 0
