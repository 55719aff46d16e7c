from __future__ import annotations

from pathlib import Path

import pytest

from tests.layouts import write_classes
from tllib_ancon.data.corrupted import imagenet_classes
from tllib_ancon.data.domains import open_domain
from tllib_ancon.errors import UserError

WNIDS = ["n03014705", "n01440764", "n02979186"]


@pytest.fixture
def few_classes(tmp_path: Path) -> Path:
    """Two images of three ImageNet classes, in two corruptions, and the list that names them."""
    for code in ("frost/5", "fog/1"):
        names = write_classes(tmp_path / code, WNIDS, images=2)
    (tmp_path / "subset.txt").write_text("\n".join(names[:5]) + "\n\n")
    return tmp_path


def test_labels_follow_the_sorted_ids_of_all_classes(few_classes: Path) -> None:
    domain = open_domain(few_classes, "ImageNetC", ["frost/5"], subset=str(few_classes / "subset.txt"))
    assert domain.num_classes == 1000
    assert domain.classes == sorted(domain.classes)
    assert [(label, Path(path).parent.name) for label, path in zip(domain.labels, domain.paths, strict=True)] == [
        (imagenet_classes().index(name), name)
        for name in ("n03014705", "n03014705", "n01440764", "n01440764", "n02979186")
    ]


def test_the_first_and_the_last_class() -> None:
    classes = imagenet_classes()
    assert (len(classes), classes[0], classes[-1]) == (1000, "n01440764", "n15075141")


def test_all_class_folders_are_needed_without_a_list(few_classes: Path) -> None:
    with pytest.raises(UserError, match=r"997 of 1000 class folders are missing, n01443537 first.*`subset`"):
        open_domain(few_classes, "ImageNetC", ["frost/5"])


def test_a_complete_set_needs_no_list(tmp_path: Path) -> None:
    names = write_classes(tmp_path / "frost/5", ["n01440764"], images=1)
    picture = tmp_path / "frost/5" / names[0]
    for name in imagenet_classes()[1:]:
        (tmp_path / "frost/5" / name).mkdir()
        (tmp_path / "frost/5" / name / "a.JPEG").hardlink_to(picture)
    (tmp_path / "frost/5/n01440764/readme.txt").write_text("no picture")
    domain = open_domain(tmp_path, "ImageNetC", ["frost/5"])
    assert domain.labels.tolist() == list(range(1000))


def test_other_classes_are_numbered_by_their_sorted_names(tmp_path: Path) -> None:
    write_classes(tmp_path / "contrast/2", ["mug", "bike"], images=1)
    domain = open_domain(tmp_path, "CorruptedImages", ["contrast/2"])
    assert domain.classes == ["bike", "mug"]
    assert domain.labels.tolist() == [0, 1]
    with pytest.raises(UserError, match="bike is no WordNet id"):
        open_domain(tmp_path, "ImageNetC", ["contrast/2"])


def test_several_domains_are_joined(few_classes: Path) -> None:
    domain = open_domain(few_classes, "ImageNetC", ["frost/5", "fog/1"], subset=str(few_classes / "subset.txt"))
    assert (len(domain), domain.name) == (10, "frost/5+fog/1")


def test_a_missing_domain(few_classes: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'frost/5'"):
        open_domain(few_classes, "ImageNetC", ["frst/5"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"does not hold frost/5; the layout .* is corruption/severity/class"):
        open_domain(tmp_path / "empty", "ImageNetC", ["frost/5"])


def test_a_domain_outside_the_root(few_classes: Path) -> None:
    (few_classes / "root").mkdir()
    with pytest.raises(UserError, match="outside the dataset root"):
        open_domain(few_classes / "root", "CorruptedImages", ["../frost/5"])


@pytest.mark.parametrize("line", ["../fog/1", "n01440764", "/n01440764/000.JPEG", "a/b/c.JPEG", "../000.JPEG"])
def test_a_faulty_line_of_the_list_is_named(few_classes: Path, line: str) -> None:
    (few_classes / "subset.txt").write_text(f"n01440764/000.JPEG\n{line}\n")
    with pytest.raises(UserError, match=r"subset.txt, line 2: expected class/name"):
        open_domain(few_classes, "ImageNetC", ["frost/5"], subset=str(few_classes / "subset.txt"))


def test_an_image_of_the_list_that_is_missing(few_classes: Path) -> None:
    (few_classes / "subset.txt").write_text("n01440764/009.JPEG\n")
    with pytest.raises(UserError, match=r"line 1: .*n01440764/009.JPEG does not exist"):
        open_domain(few_classes, "ImageNetC", ["frost/5"], subset=str(few_classes / "subset.txt"))


def test_a_list_that_cannot_be_read_or_is_empty(few_classes: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        open_domain(few_classes, "ImageNetC", ["frost/5"], subset=str(few_classes / "none.txt"))
    (few_classes / "subset.txt").write_text("\n")
    with pytest.raises(UserError, match="no image here"):
        open_domain(few_classes, "ImageNetC", ["frost/5"], subset=str(few_classes / "subset.txt"))


def test_a_subset_of_another_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`subset` is for ImageNetC and CorruptedImages"):
        open_domain(tmp_path, "OfficeHome", ["Ar"], subset="list.txt")


def test_links_that_lead_outside_the_root(few_classes: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_classes(root / "frost/5", ["bike"], images=1)
    outside = tmp_path / "fog" / "1" / WNIDS[0] / "000.JPEG"
    (root / "frost/5/bike/link.JPEG").symlink_to(outside)
    (tmp_path / "list.txt").write_text("bike/link.JPEG\n")
    for subset in (None, str(tmp_path / "list.txt")):
        with pytest.raises(UserError, match=r"bike/link.JPEG leads outside .*`allow_outside_root=True`"):
            open_domain(root, "CorruptedImages", ["frost/5"], subset=subset)
        assert open_domain(root, "CorruptedImages", ["frost/5"], subset=subset, allow_outside=True).num_classes == 1
    (root / "fog").symlink_to(tmp_path / "fog")
    with pytest.raises(UserError, match="'fog/1' leads outside"):
        open_domain(root, "CorruptedImages", ["fog/1"])
    assert len(open_domain(root, "CorruptedImages", ["fog/1"], allow_outside=True)) == 6
