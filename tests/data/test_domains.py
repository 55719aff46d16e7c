from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SHARED
from tllib_ancon.data.domains import open_domain
from tllib_ancon.errors import UserError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lists = tmp_path / "image_list"
    lists.mkdir()
    (lists / "art.txt").write_text("art/a.png 0\nart/b.png 2\nart/c.png 2\n")
    (lists / "photo.txt").write_text("photo/a.png 1\n")
    (lists / "wild.txt").write_text("wild/a.png\nwild/b.png\n")
    for name in ("art/a", "art/b", "art/c", "photo/a", "wild/a", "wild/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.png").touch()
    return tmp_path


def test_generic_dataset_with_class_names(root: Path) -> None:
    (root / "image_list" / "classes.txt").write_text("bike\nbottle\nmug\n")
    domain = open_domain(root, "ImageList", ["art", "photo"])
    assert (domain.name, len(domain), domain.classes) == ("art+photo", 4, ["bike", "bottle", "mug"])
    assert domain.labels.tolist() == [0, 2, 2, 1]


def test_generic_dataset_counts_its_classes(root: Path) -> None:
    assert open_domain(root, "ImageList", ["art"]).classes == ["0", "1", "2"]
    assert open_domain(root, "ImageList", ["photo"], num_classes=3).num_classes == 3


@pytest.mark.parametrize("number", [0, -1])
def test_number_of_classes_out_of_range(root: Path, number: int) -> None:
    with pytest.raises(UserError, match=f"`num_classes` must be at least 1, got {number}"):
        open_domain(root, "ImageList", ["art"], num_classes=number)


def test_number_of_classes_and_class_names_agree(root: Path) -> None:
    (root / "image_list" / "classes.txt").write_text("bike\nbottle\nmug\n")
    assert open_domain(root, "ImageList", ["art"], num_classes=3).num_classes == 3
    with pytest.raises(UserError, match=r"`num_classes` 4, but .*classes.txt names 3 classes"):
        open_domain(root, "ImageList", ["art"], num_classes=4)


def test_class_names_that_are_no_text(root: Path) -> None:
    (root / "image_list" / "classes.txt").write_bytes(b"bike\nb\xfcgel\nmug\n")
    with pytest.raises(UserError, match=r"classes.txt: cannot be read as UTF-8"):
        open_domain(root, "ImageList", ["art"])


def test_a_label_beyond_the_number_of_images(root: Path) -> None:
    (root / "image_list" / "typo.txt").write_text("art/a.png 0\nart/b.png 1000000000\n")
    with pytest.raises(UserError, match=r"typo.txt: label 1000000000.*`num_classes`.*classes.txt"):
        open_domain(root, "ImageList", ["art", "typo"])


def test_unlabelled_domain(root: Path) -> None:
    domain = open_domain(root, "ImageList", ["wild"], num_classes=3)
    assert not domain.labelled
    with pytest.raises(UserError, match="source domain needs them"):
        domain.require_labels()


def test_labels_can_be_removed(root: Path) -> None:
    domain = open_domain(root, "ImageList", ["art"])
    assert domain.without_labels().labels is None
    assert domain.labelled


@pytest.mark.parametrize(
    ("dataset", "codes", "message"),
    [
        ("ImageList", ["fotos"], "did you mean 'photo'"),
        ("ImageList", ["wild"], "classes.txt is missing"),
        ("Offce31", ["A"], "did you mean 'Office31'"),
        (
            "Pictures",
            ["A"],
            "CorruptedImages, Digits, DomainNet, Folder, ImageFolder, ImageList, .*, hf:NAME",
        ),
        ("ImageList", [], "no domain given"),
        ("Office31", ["X"], "Valid names: A, D, W"),
        ("Office31", ["A"], "does not hold Office31.*missing folders"),
        ("Office31", [], "no domain"),
    ],
)
def test_what_is_not_there_is_named(root: Path, dataset: str, codes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_domain(root, dataset, codes)


def test_missing_images_are_found_before_anything(root: Path) -> None:
    (root / "art" / "b.png").unlink()
    with pytest.raises(UserError, match=r"art is incomplete: 1 of 3 images are missing, .*b\.png first; `skip_corr"):
        open_domain(root, "ImageList", ["art"])
    with pytest.raises(UserError, match=r"not one of its 3 images can be decoded; image .*a\.png: cannot be decoded"):
        open_domain(root, "ImageList", ["art"], skip_corrupt=True)


def test_missing_root(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        open_domain(tmp_path / "none", "ImageList", ["a"])


@pytest.mark.parametrize(("code", "images"), [("A", 2817), ("D", 498), ("W", 795)])
def test_office31(code: str, images: int) -> None:
    root = SHARED / "data" / "office31"
    if not root.is_dir():
        pytest.skip("Office-31 is not beside this checkout")
    domain = open_domain(root, "Office31", [code])
    assert (len(domain), domain.num_classes, domain.classes[0]) == (images, 31, "back_pack")
