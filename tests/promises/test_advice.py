"""Where a message advises a flag, taking the advice leads on: the same command with that flag ends well."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main


@dataclass
class Place:
    """A folder of one's own with domains, the checkpoint of a source model, and more that a case writes."""

    folder: Path
    checkpoint: Path

    @property
    def root(self):
        return self.folder / "domains"

    def adapt(self, *words, target=True):
        target_words = ["-t", "dark"] if target else []
        return [
            *("adapt", str(self.root), "-d", "ImageList", *target_words, "--checkpoint", str(self.checkpoint)),
            *("--epochs", "1", "-b", "16", "-j", "0", "--quiet", "--log", str(self.folder / "run"), *words),
        ]

    def pretrain(self, *words):
        shared = [word for word in small_arguments(self.root) if word not in ("-s", "bright")]
        return ["pretrain", *shared, "--epochs", "1", "--log", str(self.folder / "run"), *words]


@pytest.fixture
def place(source_checkpoint, tmp_path):
    shutil.copytree(source_checkpoint.parent.parent, tmp_path / "source")
    write_domains(tmp_path / "domains")
    return Place(tmp_path, tmp_path / "source")


def no_target(place):
    return place.adapt(target=False)


def no_layout(place):
    return [word for word in place.adapt() if word not in ("-d", "ImageList")]


def no_source(place):
    return place.pretrain()


def a_run_of_other_settings(place):
    assert main(place.adapt("--seed", "1")) == 0
    return place.adapt()


def a_damaged_image(place):
    next((place.root / "dark").rglob("*.png")).write_bytes(b"no image")
    return place.adapt()


def a_batch_larger_than_the_images(place):
    return place.adapt("-b", "100")


def a_folder_that_moved(place):
    assert main(place.adapt()) == 0
    shutil.move(place.root, place.folder / "elsewhere")
    return ["certify", str(place.folder / "run"), "-j", "0", "--quiet"]


CASES = {
    no_target: ("--target", "dark"),
    no_layout: ("--data", "ImageList"),
    no_source: ("--source", "bright"),
    a_run_of_other_settings: ("--overwrite",),
    a_damaged_image: ("--skip-corrupt",),
    a_batch_larger_than_the_images: ("--batch-size", "4"),
    a_folder_that_moved: ("--root", "elsewhere"),
}
"""What goes wrong -> the flag that the message must name, and a value for it."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_flag_that_a_message_advises_leads_on(case, place, monkeypatch, capsys):
    monkeypatch.chdir(place.folder)
    words = case(place)
    flag, *value = CASES[case]
    capsys.readouterr()
    assert main(words) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert flag in message
    assert main([*words, flag, *value]) == 0, capsys.readouterr().err
