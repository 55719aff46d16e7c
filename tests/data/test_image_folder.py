from __future__ import annotations

import os
from pathlib import Path

import pytest
from torchvision.datasets import ImageFolder

from tllib_ancon.data.domains import open_domain
from tllib_ancon.errors import UserError


def touch(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    names = ("bus/a.png", "bus/B.JPG", "bike/z/1.webp", "bike/a-b/2.tif", "bike/a/3.ppm", "bike/0.jpeg", "bike/x.txt")
    return touch(tmp_path, *(f"web/{name}" for name in names), "dslr/bike/a.png", "dslr/bus/b.png")


def test_pictures_order_and_labels_are_torchvisions(root: Path) -> None:
    theirs = ImageFolder(root / "web")
    for domain in (open_domain(root, "ImageFolder", ["web"]), open_domain(root / "web", "ImageFolder", ["."])):
        assert list(zip(domain.paths, domain.labels.tolist(), strict=True)) == theirs.samples
        assert domain.classes == theirs.classes
        assert domain.name == "web"


def test_domains_are_joined(root: Path) -> None:
    domain = open_domain(root, "ImageFolder", ["dslr", "web"])
    assert (domain.name, len(domain), domain.labels.tolist()) == ("dslr+web", 8, [0, 1, 0, 0, 0, 0, 1, 1])


def test_the_order_of_given_classes_decides(root: Path) -> None:
    classes = ["car", "bus", "bike"]
    domain = open_domain(root, "ImageFolder", ["dslr"], classes=classes)
    assert (domain.classes, domain.labels.tolist()) == (classes, [2, 1])


def test_any_tree_without_labels(root: Path) -> None:
    domain = open_domain(root, "Folder", ["."])
    assert (len(domain), domain.labels, domain.classes) == (8, None, [])
    assert list(domain.paths) == sorted(domain.paths, key=lambda path: path.rsplit("/", 1))
    assert open_domain(root, "Folder", ["dslr"], classes=["a", "b"]).classes == ["a", "b"]
    assert open_domain(root, "Folder", ["dslr"], num_classes=2).classes == ["0", "1"]


def refused(root: Path, message: str, dataset: str = "ImageFolder", code: str = ".", **more: object) -> None:
    with pytest.raises(UserError, match=message) as error:
        open_domain(root, dataset, [code], **more)
    assert "\n" not in str(error.value)


def test_folders_of_other_names_are_refused_with_both_lists(root: Path) -> None:
    refused(
        root,
        r"web has other class folders than the classes, 'bus' first: bike, bus instead of bike, car",
        code="web",
        classes=["bike", "car"],
    )


def test_a_class_that_one_of_two_domains_lacks(root: Path) -> None:
    touch(root, "dslr/car/a.png")
    with pytest.raises(UserError, match=r"dslr has other class folders than .*web, 'car' first: bike, bus, car inst"):
        open_domain(root, "ImageFolder", ["web", "dslr"])
    with pytest.raises(UserError, match=r"web has other class folders than .*dslr, 'car' first: bike, bus inst"):
        open_domain(root, "ImageFolder", ["dslr", "web"])
    assert len(open_domain(root, "ImageFolder", ["dslr", "web"], classes=["bike", "bus", "car"])) == 9


def test_an_empty_folder(tmp_path: Path) -> None:
    refused(tmp_path, "is empty; expected a folder a class")
    refused(tmp_path, r"holds no picture; known endings: \.jpg", dataset="Folder")


def test_an_empty_class_folder(root: Path) -> None:
    (root / "dslr" / ".ipynb_checkpoints").mkdir()
    refused(root, r"class folder .*\.ipynb_checkpoints holds no picture .*remove it", code="dslr")


def test_pictures_where_class_folders_are_expected(root: Path) -> None:
    refused(root / "dslr", "bike holds pictures and no folder a class; `data` Folder reads", code="bike")


def test_folders_of_folders_where_pictures_are_expected(root: Path) -> None:
    refused(root, "no folder in it holds a picture; .*if 'dslr' is a domain, name it")


def test_an_unknown_domain(root: Path) -> None:
    refused(root, r"unknown domain of .*'wbe'; did you mean 'web'\? Valid names: \., dslr, web", code="wbe")


@pytest.mark.parametrize("names", [("bike/a.png", "bike/A.PNG"), ("Bike/a.png", "bike/b.png")])
def test_names_that_differ_in_case_alone(tmp_path: Path, names: tuple[str, str]) -> None:
    touch(tmp_path, *names, "bus/a.png")
    for dataset in ("ImageFolder", "Folder"):
        refused(tmp_path, "which differ in case alone; rename one", dataset=dataset)


def test_links_that_lead_outside_the_root(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = touch(tmp_path_factory.mktemp("outside"), "c.png")
    (root / "dslr" / "bike" / "link").symlink_to(outside)
    for dataset in ("ImageFolder", "Folder"):
        refused(root, "bike/link leads outside the dataset root; `allow_outside_root=True`", dataset, "dslr")
        assert len(open_domain(root, dataset, ["dslr"], allow_outside=True)) == 3
    (root / "dslr" / "bike" / "link").unlink()
    (root / "dslr" / "bike" / "link.png").symlink_to(outside / "c.png")
    refused(root, "link.png leads outside", code="dslr")
    refused(root, "leads outside", code=f"../{outside.name}")


def test_a_link_in_a_circle(root: Path) -> None:
    (root / "dslr" / "bike" / "round").symlink_to(root / "dslr")
    refused(root, "is a link to a folder that it lies in", code="dslr")


def test_what_is_missing_or_no_file_is_found_before_anything(root: Path) -> None:
    (root / "dslr" / "bike" / "gone.png").symlink_to(root / "nothing.png")
    refused(root, r"dslr is incomplete: 1 of 3 images are missing, .*gone\.png first; `skip_corrupt", code="dslr")
    (root / "dslr" / "bike" / "gone.png").unlink()
    os.mkfifo(root / "dslr" / "bike" / "pipe.png")
    refused(root, r"1 of 3 images are no regular files, .*pipe\.png first", code="dslr")


def test_a_folder_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", denied)
    refused(root, r"web cannot be read \(Permission denied\)", code="web")
