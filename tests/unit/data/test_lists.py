"""Image lists give the listed paths, labels and classes; a list that is wrong or missing is one line."""

from pathlib import Path

import pytest

from tests.support.refusals import REFUSED, one_line, refused
from tests.unit.data.conftest import touch
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.lists import listed_images
from tllib_ancon.data.open import open_domain


def read(folder, content, classes="abcd"):
    (folder / "list.txt").write_text(content, errors="surrogateescape", newline="")
    images = listed_images("d", folder / "list.txt", folder, classes)
    names = [Path(path).relative_to(folder).as_posix() for path in images.paths]
    labels = [None] * len(names) if images.labels is None else images.labels.tolist()
    return list(zip(names, labels, strict=True))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a.png 0\nb/c.png 1\n", [("a.png", 0), ("b/c.png", 1)]),
        ("a.png\t0\r\n   \r\nb.png \t 1", [("a.png", 0), ("b.png", 1)]),
        ("a.png,0\nb, 2.png , 1\n", [("a.png", 0), ("b, 2.png", 1)]),
        ("\ufeff./übung/../猫.png 3\n", [("猫.png", 3)]),
        ("a.png\nmy photo.png\n", [("a.png", None), ("my photo.png", None)]),
    ],
)
def test_lists_as_people_write_them(tmp_path, content, expected):
    assert read(tmp_path, content) == expected


@pytest.mark.parametrize(("content", "message"), REFUSED["lists"])
def test_faulty_lists_name_the_line(tmp_path, content, message):
    with refused(message, ROOT=tmp_path):
        read(tmp_path, content)


def test_links_are_followed_to_where_they_lead(tmp_path):
    root = tmp_path / "root"
    outside = tmp_path / "rooter"
    for folder in (root / "class", outside):
        touch(folder, "a.png")
    (root / "out").symlink_to(outside)
    (root / "out.png").symlink_to(outside / "a.png")
    (root / "in.png").symlink_to(root / "class" / "a.png")
    (outside / "back").symlink_to(root / "class")
    for path in ("class/a.png", "in.png", "missing/a.png", "out/back/a.png"):
        assert read(root, f"{path} 0\n") == [(path, 0)]
    for path in ("out.png", "out/a.png", "../rooter/a.png"):
        with one_line("leads outside the dataset root"):
            read(root, f"{path} 0\n")


def labelled(**labels_by_folder):
    paths = [f"root/{folder}/x.png" for folder, labels in labels_by_folder.items() for _ in labels]
    return ImageSource.of_files(
        "d", paths, ["0", "1"], [label for labels in labels_by_folder.values() for label in labels]
    )


@pytest.mark.parametrize(
    ("images", "folders"),
    [
        (labelled(bike=[0], bus=[1], mixed=[0, 1]), {"bike": 0, "bus": 1}),
        (labelled(bike=[0, 0, 1], bus=[1]), {}),  # one folder, several classes
        (labelled(bike=[0], bus=[0]), {}),  # one class, several folders
    ],
)
def test_folders_name_classes_where_each_class_has_one(images, folders):
    assert images.class_folders == folders


def write(root, **lists):
    """Lists, and the images that they name."""
    touch(root, *(f"image_list/{name}.txt" for name in lists))
    for name, text in lists.items():
        (root / "image_list" / f"{name}.txt").write_text(text)
        lines = filter(None, text.splitlines()) if name != "classes" else ()
        touch(root, *(line.rsplit(maxsplit=1)[0] for line in lines))
    return root


@pytest.fixture
def root(tmp_path):
    art = "art/a.png 0\nart/b.png 2\nart/c.png 2\n"
    return write(tmp_path, art=art, photo="photo/a.png 1\n", wild="wild/a.png\nwild/b.png\n")


def test_domains_are_joined_and_classes_named_or_counted(root):
    assert open_domain(root, "ImageList", ["art"]).classes == ["0", "1", "2"]
    assert open_domain(root, "ImageList", ["photo"]).classes == ["0", "1"]
    assert open_domain(root, "ImageList", ["wild", "art"]).labels is None
    assert open_domain(root, "ImageList", ["wild"]).classes == []
    write(root, classes="bike\nbottle\n\nmug\n")
    domain = open_domain(root, "ImageList", ["art", "photo"])
    assert domain.name == "art+photo"
    assert len(domain) == 4
    assert domain.classes == ["bike", "bottle", "mug"]
    assert domain.labels.tolist() == [0, 2, 2, 1]


def test_class_names_that_do_not_fit(root):
    (root / "image_list" / "classes.txt").write_text("bike\nbike\nmug\n")
    with one_line("classes.txt: expected a distinct name for each class"):
        open_domain(root, "ImageList", ["art"])


@pytest.mark.parametrize(("dataset", "codes", "message"), REFUSED["domains"])
def test_what_is_not_there_is_named(root, dataset, codes, message):
    write(root, typo="art/a.png 0\nart/b.png 1000000000\n", gone="gone/a.png 0\ngone/b.png 1\n")
    (root / "gone" / "b.png").unlink()
    with refused(message, ROOT=root):
        open_domain(root, dataset, codes)


def test_roots_that_hold_nothing_to_read(root):
    with one_line("none is not a folder; give the folder that holds it as `root`"):
        open_domain(root / "none", "ImageList", ["a"])
    with one_line(r"art: no image_list/\*\.txt here; for class folders pass `data=\"ImageFolder\"`"):
        open_domain(root / "art", "ImageList", ["a"])
    with one_line(
        "domain art: not one of its 3 images can be decoded; repair them or give others: image .*a.png is no"
    ):
        open_domain(root, "ImageList", ["art"], skip_corrupt=True)


def test_orders_of_classes_must_agree(tmp_path):
    art = "art/bike/a.png 0\nart/bus/b.png 1\n"
    photo = "photo/bike/a.png 1\nphoto/bus/b.png 0\n"
    write(tmp_path, art=art, photo=photo, more="more/car/a.png 2\nmore/bus/b.png 1\n")
    advice = "(2 classes differ); give every list the same labels"
    with refused(f"the class orders differ: 'bike' has label 0 in art and 1 in photo {advice}"):
        open_domain(tmp_path, "ImageList", ["art", "photo"])
    write(tmp_path, classes="bike\nbus\ncar")
    assert open_domain(tmp_path, "ImageList", ["art", "more"]).num_classes == 3
