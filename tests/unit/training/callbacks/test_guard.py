"""Diversity of predictions, and the fall of it that is a collapse."""

import pytest
import torch

from tllib_ancon.training.callbacks.guard import _has_collapsed
from tllib_ancon.training.callbacks.scores import effective_classes


@pytest.mark.parametrize(
    ("classes", "infomax", "collapsed"),
    [(2.0, 0.4, True), (2.0, 0.6, False), (4.0, 0.4, False)],
)
def test_both_numbers_have_to_fall(classes, infomax, collapsed):
    after = {"effective_classes": classes, "infomax": infomax}
    assert _has_collapsed(after, {"effective_classes": 4.0, "infomax": 1.0}) == collapsed


def test_the_effective_number_of_predicted_classes():
    assert effective_classes(torch.tensor([0, 0, 3, 3])) == pytest.approx(2)
    assert effective_classes(torch.tensor([0, 0, 0])) == pytest.approx(1)
