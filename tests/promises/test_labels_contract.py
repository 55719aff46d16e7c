"""Labels: numbers from 0 to K - 1, or folders that all have names of the model's classes; else none, and one note."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import tllib_ancon
from tests.support.levels import UNSCALED, levels, write
from tests.support.refusals import one_line

NAMES = ["pig", "snowy owl", "dog", "cat"]


def accuracy(model, images, **settings):
    return tllib_ancon.evaluate(model, images, **UNSCALED, **settings).accuracy


@given(order=st.permutations(range(4)), some=st.sets(st.integers(0, 3), min_size=1))
def test_folders_with_names_of_the_model_are_labels_in_any_order(order, some, tmp_path_factory):
    folders = [NAMES[label] if label in some else None for label in order]
    photos = write(tmp_path_factory.mktemp("photos"), folders, 4, inside="deep")
    assert accuracy(levels(4, class_names=[NAMES[label] for label in order]), photos) == 100
    assert accuracy(levels(4), photos, class_names=tuple(NAMES[label] for label in order)) == 100


def test_numbers_are_names_in_their_own_order(tmp_path):
    photos = write(tmp_path, map(str, range(12)), 12)
    assert accuracy(levels(12), photos) == 100
    assert accuracy(levels(12), photos, data="ImageFolder") == 100


@pytest.mark.parametrize("folders", [["pig", "kitten"], ["2022", "2023"], ["pig", "1"], ["pig", "pig/inside", "4"]])
@pytest.mark.parametrize("class_names", [None, NAMES])
def test_other_folders_give_no_labels_and_one_note(folders, class_names, tmp_path, capfd):
    photos = write(tmp_path, folders, 4)
    assert accuracy(levels(4, class_names=class_names), photos) is None
    assert capfd.readouterr().err.count("images without labels") == 1


def test_images_beside_folders_give_no_labels(tmp_path):
    photos = write(tmp_path, ["pig", "dog", ".thumbs"], 4)
    Image.new("RGB", (8, 8)).save(photos / "first.png")
    evaluation = tllib_ancon.evaluate(levels(4, class_names=NAMES), photos, **UNSCALED)
    assert evaluation.accuracy is None
    assert evaluation.scores["images"] == 5


def test_names_differ_in_case_spaces_and_accents(tmp_path):
    folders = [unicodedata.normalize("NFD", name) for name in ("BÄR", "snowy_owl", "Möwe")]
    assert accuracy(levels(3, class_names=["Bär", "Snowy Owl", "Möwe"]), write(tmp_path, folders, 3)) == 100


def test_a_dataset_that_names_other_classes_is_one_line(tmp_path):
    photos = write(tmp_path, ["pig", "kitten"], 4)
    with one_line(
        r"has 2 classes \(kitten, pig\), not all of which are among the 4 of the model \(pig, snowy owl, dog, cat\); "
        "pass `class_names`, the names in the order of the model's outputs, or images without labels$"
    ):
        accuracy(levels(4, class_names=NAMES), photos, data="ImageFolder")
    with one_line("not all of which are among the 4 of the model"):
        accuracy(levels(4), photos, data="ImageFolder")


def test_domains_of_class_folders_may_lack_classes(tmp_path):
    write(tmp_path, ["mary/cat", "john/dog", "john/owl"], 3)
    model = levels(3)
    how = {"data": "ImageFolder", "target": ("john", "mary"), "class_names": ("cat", "dog", "owl")}
    assert accuracy(model, tmp_path, **how) == 100


PIXELS = np.zeros((6, 8, 8, 3), np.uint8)


@pytest.mark.parametrize("labels", [[-1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 4]])
def test_numbers_outside_are_one_line(labels):
    with one_line("labels range from .* to .*; pass for each of 6 images the whole number of its class, from 0 to "):
        accuracy(levels(4), PIXELS, labels=labels)


@pytest.mark.parametrize("labels", [np.eye(4)[[0] * 6], ["pig"] * 6, [0] * 5, {0: 1}])
def test_labels_of_another_form_are_one_line(labels):
    with one_line(r"labels are .* of shape .*; pass for each of 6 images the whole number of its class"):
        accuracy(levels(4), PIXELS, labels=labels)


def test_labels_that_count_from_one():
    with one_line("if they count from 1, subtract 1"):
        accuracy(levels(4), PIXELS, labels=[1, 2, 3, 4, 1, 2])


def test_names_of_classes_come_from_a_file_with_a_name_on_each_line(tmp_path):
    photos = write(tmp_path / "photos", ["pig", "cat", "snowy owl"], 3)
    (tmp_path / "names.txt").write_text("pig\r\ncat\r\nsnowy owl\r\n")
    assert accuracy(levels(3), photos, class_names=tmp_path / "names.txt") == 100


def test_names_that_do_not_fit_are_one_line(tmp_path):
    photos = write(tmp_path / "photos", ["pig", "cat"], 2)
    with one_line("^`class_names` has a name twice; give each class a name of its own$"):
        accuracy(levels(2), photos, class_names=["pig", "pig"])
    with one_line(
        '^`class_names="names.txt"` is not a file; give the names in the order of the labels, such as cat dog, or a '
        "text file with a name on each line$"
    ):
        accuracy(levels(2), photos, class_names="names.txt")
    with one_line(r"`class_names` has 2 names, 'pig' first, and the model has 3 classes"):
        accuracy(levels(3), photos, class_names=["pig", "cat"])
