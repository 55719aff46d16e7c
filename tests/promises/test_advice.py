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


def no_target_for_cdan(place):
    return place.pretrain("-s", "bright", "--method", "cdan", "-i", "2")


def a_run_of_other_settings(place):
    assert main(place.adapt("--seed", "1")) == 0
    return place.adapt()


def predictions_that_exist(place):
    (place.folder / "out.csv").write_text("mine")
    words = ["predict", str(place.root / "dark"), "--checkpoint", str(place.checkpoint), "-j", "0", "--quiet"]
    return [*words, "--out", str(place.folder / "out.csv")]


def a_damaged_image(place):
    next((place.root / "dark").rglob("*.png")).write_bytes(b"no image")
    return place.adapt()


def a_missing_image(place):
    next((place.root / "dark").rglob("*.png")).unlink()
    return place.adapt()


def an_image_outside_the_root(place):
    shutil.move(place.root / "dark", place.folder / "dark")
    file = place.root / "image_list" / "dark.txt"
    lines = file.read_text().splitlines()
    file.write_text("".join(f"{place.folder}/{line}\n" for line in lines))
    return place.adapt()


def a_batch_larger_than_the_images(place):
    return place.adapt("-b", "100")


def a_rate_that_is_fitted_for_adamw(place):
    return place.adapt("--step-change", "0.05", "--optimizer", "adamw")


def class_folders_that_are_images(place):
    for number, image in enumerate(sorted((place.root / "dark").rglob("*.png"))):
        (place.folder / "photos" / "mine").mkdir(parents=True, exist_ok=True)
        shutil.copy(image, place.folder / "photos" / "mine" / f"{number}.png")
    words = place.adapt("--class-names", str(place.root / "image_list" / "classes.txt"))
    words[1:6] = [str(place.folder / "photos"), "-d", "ImageFolder", "-t", "mine"]
    return words


def a_folder_that_moved(place):
    assert main(place.adapt()) == 0
    shutil.move(place.root, place.folder / "elsewhere")
    return ["certify", str(place.folder / "run"), "-j", "0", "--quiet"]


def a_source_model_that_is_gone(place):
    assert main(place.adapt()) == 0
    shutil.move(place.checkpoint, place.folder / "moved")
    return ["certify", str(place.folder / "run"), "-j", "0", "--quiet"]


CASES = {
    no_target: ("--target", "dark"),
    no_layout: ("--data", "ImageList"),
    no_source: ("--source", "bright"),
    no_target_for_cdan: ("--target", "dark"),
    a_run_of_other_settings: ("--overwrite",),
    predictions_that_exist: ("--overwrite",),
    a_damaged_image: ("--skip-corrupt",),
    a_missing_image: ("--skip-corrupt",),
    an_image_outside_the_root: ("--allow-outside-root",),
    a_batch_larger_than_the_images: ("--batch-size", "4"),
    a_rate_that_is_fitted_for_adamw: ("--optimizer", "sgd"),
    class_folders_that_are_images: ("--data", "Folder"),
    a_folder_that_moved: ("--root", "elsewhere"),
    a_source_model_that_is_gone: ("--checkpoint", "moved"),
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
