"""Names and numbers of classes meet in one place."""

import pytest
import timm

from tests.support.networks import transformer
from tllib_ancon.models.class_names import class_names_of
from tllib_ancon.opening.classes import ClassMap


@pytest.mark.parametrize(
    ("names", "labels"), [(["02", "00"], [2, 0]), (["3"], None), (["pig", "PIG"], None), (["-1"], None)]
)
def test_all_names_match_or_none_does(names, labels):
    assert ClassMap(3, ["pig", "snowy owl", "dog"]).match(names) == labels


def test_names_go_before_numbers():
    assert ClassMap(3, ["1", "2", "3"]).match(["3", "2", "1"]) == [2, 1, 0]
    assert ClassMap(3, ["1", "2", "3"]).match(["0", "2"]) == [0, 2]


def test_a_name_that_two_classes_have_matches_none():
    classes = ClassMap(3, ["crane", "crane", "goldfish"])
    assert classes.match(["crane"]) is None
    assert classes.match(["goldfish"]) == [2]
    assert classes.distinct_names == ["0", "1", "2"]


def test_names_of_libraries():
    assert class_names_of(transformer("ResNet"), 3) is None  # which makes names up
    labelled = timm.create_model("test_resnet", num_classes=2, pretrained_cfg_overlay={"label_names": ["b", "a"]})
    assert class_names_of(labelled, 2) == ["b", "a"]


def test_a_model_with_a_thousand_classes_has_the_names_of_imagenet():
    classes = ClassMap(1000, class_names_of(timm.create_model("test_resnet", num_classes=1000), 1000))
    assert classes.match(["n01440764", "goldfish", "great_white_shark", "n15075141"]) == [0, 1, 2, 999]
    assert classes.match(["crane"]) is None
