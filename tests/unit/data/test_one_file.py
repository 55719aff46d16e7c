"""A path to one file is an image, an array or an image list; for everything else a line says what to give."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import tllib_ancon
from tests.support.networks import Net
from tests.support.refusals import one_line

PREPROCESSING = {"image_size": 8, "norm_mean": (0, 0, 0), "norm_std": (1, 1, 1), "quiet": True}


@pytest.fixture
def photos(tmp_path):
    for number in range(4):
        image = Image.new("RGB", (8, 8), (60 * number, 0, 0))
        image.save(tmp_path / f"{number}.png")
    return tmp_path


def test_an_image_list_is_read_with_its_labels(photos):
    image_list = photos / "target.txt"
    image_list.write_text("0.png 0\n1.png 1\n2.png 0\n3.png 1\n")
    predictions = tllib_ancon.predict(Net(2), image_list, **PREPROCESSING)
    assert [Path(path).name for path in predictions.paths] == ["0.png", "1.png", "2.png", "3.png"]
    right = (np.asarray(predictions.labels) == [0, 1, 0, 1]).mean()
    assert tllib_ancon.evaluate(Net(2), image_list, **PREPROCESSING).accuracy == pytest.approx(100 * right)
    result = tllib_ancon.adapt(Net(2), image_list, epochs=1, **PREPROCESSING)
    assert "accuracy" in result.metrics[-1]


def test_a_list_of_other_paths_follows_the_advice(photos):
    (photos / "lists").mkdir()
    image_list = photos / "lists" / "target.txt"
    image_list.write_text("path,label\n0.png,0\n1.png,1\n")
    with one_line(r"line 1: no integer label .* add it, or remove the line$"):
        tllib_ancon.predict(Net(2), image_list, **PREPROCESSING)
    image_list.write_text("0.png,0\n1.png,1\n")
    with one_line(r"2 of 2 images are missing.*; correct the paths; in a list they start from its"):
        tllib_ancon.predict(Net(2), image_list, **PREPROCESSING)
    moved = image_list.rename(photos / "target.txt")
    assert len(tllib_ancon.predict(Net(2), moved, **PREPROCESSING).labels) == 2


def test_a_list_outside_its_folder_follows_the_advice(photos, tmp_path_factory):
    image_list = tmp_path_factory.mktemp("lists") / "target.txt"
    image_list.write_text(str(photos / "0.png"))
    with one_line("pass `allow_outside_root=True`"):
        tllib_ancon.predict(Net(2), image_list, **PREPROCESSING)
    predictions = tllib_ancon.predict(Net(2), image_list, allow_outside_root=True, **PREPROCESSING)
    assert len(predictions.labels) == 1


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("labels.csv", r"is a table, .*; give a text file with a path on each line \(\.txt\), or in Python the list"),
        ("coco.json", "is a table, "),
        ("photos.zip", r"is an archive; give the folder that you unpack it to$"),
        ("*.png", r"in Python pass glob\.glob\(PATTERN, recursive=True\), on the command line give the folder$"),
    ],
)
def test_what_is_no_image_says_what_to_give(photos, name, advice):
    (photos / "labels.csv").write_text("path,label\n0.png,1\n")
    (photos / "coco.json").write_text('{"images": []}')
    (photos / "photos.zip").write_bytes(b"PK")
    for function in (tllib_ancon.adapt, tllib_ancon.predict):
        with one_line(advice):
            function(Net(2), photos / name, **PREPROCESSING)


def test_a_model_of_another_side_follows_the_advice():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 2))
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    for function in (tllib_ancon.adapt, tllib_ancon.predict):
        with one_line("takes images alone, of this shape; `image_size`"):
            function(model, pixels, **PREPROCESSING)
    assert len(tllib_ancon.predict(model, pixels, **{**PREPROCESSING, "image_size": 12}).labels) == 4


def test_pixels_in_wide_integers_follow_the_advice():
    pixels = torch.randint(0, 255, (4, 3, 8, 8))
    with one_line("of int64; pass images as uint8"):
        tllib_ancon.predict(Net(2), pixels, quiet=True)
    assert len(tllib_ancon.predict(Net(2), pixels.to(torch.uint8), **PREPROCESSING).labels) == 4


@pytest.mark.parametrize(
    "as_people_have_them",
    [
        lambda paths: tuple(paths),
        lambda paths: np.array([*map(str, paths)]),
        lambda paths: np.array(paths, dtype=object),
        lambda paths: [(str(path), number % 2) for number, path in enumerate(paths)],
        lambda paths: pytest.importorskip("pandas").Series(paths),
        lambda paths: pytest.importorskip("pandas").DataFrame({"path": map(str, paths), "label": 0})["path"],
        lambda paths: pytest.importorskip("pandas").Index(map(str, paths)),
    ],
)
def test_paths_in_other_forms_than_a_list(photos, as_people_have_them):
    paths = sorted(photos.glob("*.png"))
    predictions = tllib_ancon.predict(Net(2), as_people_have_them(paths), **PREPROCESSING)
    assert predictions.paths == [*map(str, paths)]


def test_a_table_follows_the_advice(photos):
    table = pytest.importorskip("pandas").DataFrame({"path": map(str, photos.glob("*.png")), "label": 0})
    with one_line(r"its column of paths alone, such as table\['path'\]"):
        tllib_ancon.predict(Net(2), table, **PREPROCESSING)


def test_one_image_follows_the_advice():
    array = np.zeros((8, 8, 3), np.uint8)
    for image in (array, torch.from_numpy(array).movedim(2, 0)):
        with one_line(r"is the shape of one image; pass a list of images, such as \[image\]"):
            tllib_ancon.predict(Net(2), image, **PREPROCESSING)
        assert len(tllib_ancon.predict(Net(2), [image], **PREPROCESSING).labels) == 1


def test_a_network_of_one_channel_follows_the_advice():
    pixels = np.zeros((4, 8, 8), np.uint8)
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    network_of_one_channel = nn.Sequential(nn.Conv2d(1, 4, 3), *pooled, nn.Linear(4, 2))
    for function in (tllib_ancon.adapt, tllib_ancon.predict):
        with one_line("expected input.* to have 1 channels, but got 3 channels"):
            function(network_of_one_channel, pixels, **PREPROCESSING)
    one_channel = {**PREPROCESSING, "norm_mean": (0,), "norm_std": (1,)}
    assert len(tllib_ancon.predict(network_of_one_channel, pixels, **one_channel).labels) == 4
