from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SHARED
from tllib_ancon.data.class_folders import class_folders, require_same_order
from tllib_ancon.data.domains import open_domain
from tllib_ancon.data.image_list import ImageList
from tllib_ancon.data.paths import Paths
from tllib_ancon.errors import UserError


def images(**labels_by_folder: list[int]) -> ImageList:
    paths = [f"root/{folder}/x.png" for folder, labels in labels_by_folder.items() for _ in labels]
    return ImageList(Paths(paths), np.array([label for labels in labels_by_folder.values() for label in labels]))


@pytest.mark.parametrize(
    ("listed", "folders"),
    [
        (images(bike=[0, 0], bus=[1]), {"bike": 0, "bus": 1}),
        (images(bike=[0] * 19 + [1], bus=[1] * 10), {"bike": 0, "bus": 1}),
        (images(bike=[0, 0, 1], bus=[1]), {}),  # one folder, several classes
        (images(bike=[0], bus=[0]), {}),  # one class, several folders
        (images(images=[0, 0]), {}),
        (images(bike=[0], bus=[1])._replace(labels=None), {}),
    ],
)
def test_folders_name_classes_where_each_class_has_one(listed: ImageList, folders: dict[str, int]) -> None:
    assert class_folders(*listed) == folders


def test_orders_are_compared_by_the_folders_that_both_have() -> None:
    require_same_order({"bike": 0, "bus": 1}, {"bus": 1, "car": 0}, "A", "B")
    with pytest.raises(UserError, match=r"'bike' has label 0 in A and 1 in B \(2 classes differ\)"):
        require_same_order({"bike": 0, "bus": 1}, {"bus": 0, "bike": 1}, "A", "B")


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def write(root: Path, **lists: str) -> None:
    (root / "image_list").mkdir()
    for name, text in lists.items():
        (root / "image_list" / f"{name}.txt").write_text(text)
        for line in filter(None, text.splitlines()) if name != "classes" else ():
            touch(root / line.rsplit(maxsplit=1)[0])


def test_domains_that_are_joined_must_agree(tmp_path: Path) -> None:
    write(tmp_path, art="art/bike/a.png 0\nart/bus/b.png 1\n", photo="photo/bike/a.png 1\nphoto/bus/b.png 0\n")
    assert len(open_domain(tmp_path, "ImageList", ["art"])) == 2
    with pytest.raises(UserError, match=r"'bike' has label 0 in art and 1 in photo"):
        open_domain(tmp_path, "ImageList", ["art", "photo"])


def test_a_domain_must_agree_with_the_class_names(tmp_path: Path) -> None:
    write(tmp_path, art="art/bike/a.png 0\nart/bus/b.png 1\n", classes="bus\nbike\n")
    with pytest.raises(UserError, match=r"'bike' has label 0 in art and 1 in .*classes\.txt"):
        open_domain(tmp_path, "ImageList", ["art"])


def test_a_class_may_be_missing(tmp_path: Path) -> None:
    photo = "photo/car/a.png 2\nphoto/bus/b.png 1\n"
    write(tmp_path, art="art/bike/a.png 0\nart/bus/b.png 1\n", photo=photo, classes="bike\nbus\ncar")
    assert open_domain(tmp_path, "ImageList", ["art", "photo"]).num_classes == 3


def test_the_order_of_office31_is_read_from_its_folders() -> None:
    root = SHARED / "data" / "office31"
    if not root.is_dir():
        pytest.skip("Office-31 is not beside this checkout")
    domain = open_domain(root, "Office31", ["D", "W"])
    assert class_folders(domain.paths, domain.labels) == {name: label for label, name in enumerate(domain.classes)}


def test_a_fingerprint_depends_on_paths_labels_and_order_but_not_on_the_root(tmp_path: Path) -> None:
    roots = {}
    for name, text in {
        "one": "a.png 0\nb.png 1\n",
        "same": "a.png 0\n\n./b.png\t1\n",
        "order": "b.png 1\na.png 0\n",
        "label": "a.png 0\nb.png 0\n",
        "path": "a.png 0\nc.png 1\n",
    }.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, art=text)
        roots[name] = open_domain(tmp_path / name, "ImageList", ["art"], num_classes=2).fingerprint()
    assert roots.pop("same") == roots["one"]
    assert len(set(roots.values())) == 4
