from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.domains import as_domain, missing_dataset
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import TransformOptions, evaluation_transform
from tllib_ancon.errors import UserError


class Items:
    """A map-style dataset of these items."""

    def __init__(self, *items: Any):
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


RED = Image.new("RGB", (4, 4), (255, 0, 0))
BYTES = torch.zeros(3, 4, 4, dtype=torch.uint8).index_fill(0, torch.tensor([0]), 255)


@pytest.mark.parametrize(
    "item",
    [
        RED,
        RED.convert("P"),
        (RED, 3),
        [RED, "name"],
        {"image": RED, "label": 3},
        {"label": 3, "img": RED},
        {"picture": RED, "label": 3},
        BYTES,
        (BYTES, torch.tensor(1)),
        np.asarray(RED),
    ],
)
def test_items_that_hold_a_picture(item: Any) -> None:
    domain = as_domain(Items(item, item))
    assert not domain.holds_tensors
    assert domain.labels is None
    assert list(domain.classes) == []
    assert np.array_equal(np.asarray(domain.image(1)), np.asarray(RED))


@pytest.mark.parametrize("channels", [1, 3, 6])
@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_reach_the_model_as_they_are(channels: int, workers: int) -> None:
    images = torch.randn(5, channels, 6, 7)
    domain = as_domain(TensorDataset(images, torch.arange(5)))
    assert (domain.name, domain.holds_tensors) == ("TensorDataset", True)
    loader = ImageLoader(UnlabelledImages(domain, evaluation_transform(TransformOptions())), 2, workers)
    assert torch.equal(torch.cat([batch for _, batch in loader]), images)
    halved = ImageLoader(UnlabelledImages(domain, lambda image: image / 2), 2, workers)
    assert torch.equal(torch.cat([batch for _, batch in halved]), images / 2)


def test_double_and_half_become_float() -> None:
    for kind in (torch.float64, torch.float16):
        assert as_domain(Items(torch.zeros(3, 2, 2, dtype=kind))).image(0).dtype == torch.float32


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (3, "3 is no image"),
        (("name", RED), "'name' is no image"),
        ({"label": 3}, "3 is no image"),
        ({}, "None is no image"),
        ((), "None is no image"),
        (torch.zeros(4, 4), r"Tensor \(4, 4\) torch.float32 is no image"),
        (torch.zeros(2, 3, 4, 4), r"Tensor \(2, 3, 4, 4\)"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), r"Tensor \(3, 4, 4\) torch.int64"),
        (torch.zeros(4, 4, 3, dtype=torch.uint8), r"Tensor \(4, 4, 3\)"),
        (np.zeros((4, 4)), r"ndarray \(4, 4\) float64"),
    ],
)
def test_items_that_are_no_image(item: Any, shown: str) -> None:
    with pytest.raises(UserError, match=f"Items, item 0: {shown}.*; expected a PIL image"):
        as_domain(Items(item))


def test_an_item_unlike_the_first() -> None:
    domain = as_domain(Items(torch.zeros(3, 4, 4), torch.zeros(3, 5, 4), RED), name="mine")
    with pytest.raises(UserError, match=r"mine, item 1: \(3, 5, 4\) instead of \(3, 4, 4\) as item 0"):
        domain.image(1)
    with pytest.raises(UserError, match=r"mine, item 2: a picture instead of \(3, 4, 4\) as item 0"):
        domain.image(2)


def test_grey_pictures_get_three_channels() -> None:
    grey = np.arange(16, dtype=np.uint8).reshape(4, 4)
    for item in (grey, grey[..., None], torch.from_numpy(grey)[None], Image.fromarray(grey)):
        assert np.array_equal(np.asarray(as_domain(Items(item)).image(0)), grey[..., None].repeat(3, axis=2))


def test_a_picture_with_values_that_are_not_finite_is_refused() -> None:
    with pytest.raises(UserError, match=r"Items, item 0: cannot be read .*not finite"):
        as_domain(Items(Image.new("F", (2, 2), float("nan"))))


def test_an_error_in_a_dataset_is_named() -> None:
    class Failing(Items):
        def __getitem__(self, index: int) -> Any:
            return RED if index == 0 else 1 / 0

    with pytest.raises(UserError, match=r"Failing, item 1: cannot be read .ZeroDivisionError: division by zero"):
        as_domain(Failing(1, 2)).image(1)


def test_a_dataset_without_length() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            yield RED

    for stream in (Stream(), iter([RED])):
        with pytest.raises(UserError, match=r"has no length or no items by number, .*; give a map-style dataset"):
            as_domain(stream)
    with pytest.raises(UserError, match="Items: the dataset is empty"):
        as_domain(Items())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0], r"labels are int64 \(1,\); expected a whole number for each of 2 images"),
        ([0.0, 1.0], r"labels are float64 \(2,\)"),
        ([0, 3], "labels from 0 to 3; expected 0 to 2: it has 3 classes"),
        ([-1, 0], "labels from -1 to 0"),
    ],
)
def test_labels_that_do_not_fit(labels: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        as_domain(Items(RED, RED), labels=labels, classes=["a", "b", "c"])


def test_labels_count_the_classes_where_nothing_names_them() -> None:
    domain = as_domain(Items(RED, RED), labels=torch.tensor([2, 0]))
    assert (domain.labels.tolist(), list(domain.classes)) == ([2, 0], ["0", "1", "2"])


def test_a_domain_stays_what_it_is() -> None:
    domain = as_domain(Items(RED, RED), labels=[0, 1], classes=["a", "b"]).subset([1])
    assert isinstance(as_domain(domain), Domain)
    assert (as_domain(domain).positions.tolist(), as_domain(domain).labels.tolist()) == ([1], [1])
    assert as_domain(domain, labels=False, name="other").labels is None
    assert as_domain(domain, name="other").name == "other"


def test_content_tells_datasets_of_one_length_apart() -> None:
    class Random(Items):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(3, 2, 2)

    one, other = (as_domain(TensorDataset(torch.randn(20, 3, 4, 4))) for _ in range(2))
    assert one.fingerprint() == one.fingerprint() != other.fingerprint()
    assert as_domain(Random(1, 2)).fingerprint() == as_domain(Random(1, 2)).fingerprint()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("photos/a.png", "photos/b.png", "web/bike/a.png", "web/bus/b.png", "mixed/a.png", "mixed/bike/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        RED.save(tmp_path / name)
    return tmp_path


def test_folders(root: Path) -> None:
    photos, web = as_domain(root / "photos"), as_domain(str(root / "web"))
    assert (photos.name, len(photos), photos.labels, list(photos.classes)) == ("photos", 2, None, [])
    assert (web.name, web.labels.tolist(), web.classes) == ("web", [0, 1], ["bike", "bus"])
    assert as_domain(root / "web", classes=["bus", "bike"]).labels.tolist() == [1, 0]
    assert as_domain(root / "photos", classes=["x", "y"]).classes == ["x", "y"]
    tree = as_domain(root, labels=False)
    assert (len(tree), tree.labels) == (6, None)


def test_folders_that_are_neither(root: Path) -> None:
    (root / "empty").mkdir()
    for path, message in {
        "none": "is not a folder",
        "empty": r"holds no picture; known endings: \.jpg",
        "mixed": "holds pictures beside folders, 'bike' first: .* `labels=False` reads all",
    }.items():
        with pytest.raises(UserError, match=message):
            as_domain(root / path)
    with pytest.raises(UserError, match="web has other class folders than the classes, 'bike' first"):
        as_domain(root / "web", classes=["car", "bus"])


def test_without_the_name_of_a_dataset_it_is_guessed(root: Path) -> None:
    (root / "image_list").mkdir()
    (root / "image_list" / "x.txt").touch()
    for path, guess in {"photos": "Folder", "web": "ImageFolder", "": "ImageList"}.items():
        assert f"looks like {guess}: pass `data` {guess}. Names: ImageList, ImageFolder, Folder, ImageNetC" in str(
            missing_dataset(root / path)
        )
    assert "looks like" not in str(missing_dataset(root / "none"))
