"""Datasets of Hugging Face give the same images, labels and classes as files."""

import io

import pytest
from PIL import Image

from tests.support.refusals import one_line
from tllib_ancon.data.open import as_domain

datasets = pytest.importorskip("datasets", reason="datasets is not installed")
NAMES = ["bike", "bus", "car"]


def images(count=6):
    return [Image.new("RGB", (8, 6), (10 * number, 0, 0)) for number in range(count)]


def labelled():
    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=NAMES)})
    return datasets.Dataset.from_dict({"picture": images(), "kind": [0, 1, 2, 0, 1, 2]}, features=features)


def test_a_split_has_the_images_labels_and_classes_of_its_columns():
    domain = as_domain(labelled().select([4, 1, 0]))
    assert domain.classes == NAMES
    assert domain.paths is None
    assert domain.labels.tolist() == [1, 1, 0]
    assert [domain.image(index).getpixel((0, 0))[0] for index in range(3)] == [40, 10, 0]
    assert domain.fingerprint() == as_domain(labelled().select([4, 1, 0])).fingerprint()
    assert domain.fingerprint() != as_domain(labelled().select([1, 4, 0])).fingerprint()


@pytest.mark.parametrize(("labels", "expected"), [([2, 0], (["0", "1", "2"], [2, 0])), ([None, 0], ([], None))])
def test_labels_of_every_kind(labels, expected):
    domain = as_domain(datasets.Dataset.from_dict({"image": images(2), "label": labels}))
    assert (list(domain.classes), None if domain.labels is None else domain.labels.tolist()) == expected


def test_an_image_that_cannot_be_decoded_is_named():
    broken = io.BytesIO()
    images(1)[0].save(broken, "PNG")
    items = [{"bytes": broken.getvalue(), "path": None}, {"bytes": b"no image", "path": None}]
    dataset = datasets.Dataset.from_dict({"image": items}, features=datasets.Features({"image": datasets.Image()}))
    with one_line(r"the dataset, image 1 is no .*`skip_corrupt=True`"):
        as_domain(dataset).image(1)
    assert as_domain(dataset, skip_corrupt=True).positions.tolist() == [0]
