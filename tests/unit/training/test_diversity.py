"""Diversity of predictions, and the fall of it that is a collapse."""

import pytest
import torch

from tllib_ancon.training.collapse import Diversity, has_collapsed


@pytest.mark.parametrize(
    ("classes", "infomax", "collapsed"),
    [(2.0, 0.4, True), (2.0, 0.6, False), (4.0, 0.4, False), (4.0, 1.2, False)],
)
def test_both_numbers_have_to_fall(classes, infomax, collapsed):
    assert has_collapsed(Diversity(classes, infomax), Diversity(4.0, 1.0)) == collapsed


def test_predicting_the_four_of_ten_classes_that_are_there_is_no_collapse():
    all_classes = Diversity.of(50 * torch.eye(10).repeat(4, 1))
    classes_of_the_target = Diversity.of(50 * torch.eye(10)[:4].repeat(10, 1))
    assert not has_collapsed(classes_of_the_target, all_classes)
    assert has_collapsed(Diversity.of(50 * torch.eye(10)[:2].repeat(20, 1)), all_classes)


def test_diversity_of_predictions():
    logits = 50 * torch.eye(4)[[0, 0, 1, 1]]
    assert Diversity.of(logits) == pytest.approx((2, torch.tensor(2.0).log().item()))
