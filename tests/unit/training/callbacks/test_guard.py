"""Diversity of predictions, and the fall of it that is a collapse."""

import pytest
import torch

from tllib_ancon.training.callbacks.guard import CollapseGuard, _has_collapsed, before_training
from tllib_ancon.training.callbacks.scores import effective_classes


@pytest.mark.parametrize(
    ("classes", "infomax", "collapsed"),
    [(2.0, 0.4, True), (2.0, 0.6, False), (4.0, 0.4, False)],
)
def test_both_numbers_have_to_fall(classes, infomax, collapsed):
    after = {"effective_classes": classes, "infomax": infomax}
    assert _has_collapsed(after, {"effective_classes": 4.0, "infomax": 1.0}) == collapsed


def test_the_diversity_before_training_is_by_mixed_statistics_where_they_are_mixed():
    epochs = [{"infomax": 1.0, "effective_classes": 4.0}, {"infomax": 0.5, "effective_classes": 2.0}]
    assert before_training(epochs) == epochs[0]
    epochs[1] |= {"infomax_before": 0.9, "effective_classes_before": 3.0}
    assert before_training(epochs) == {"infomax": 0.9, "effective_classes": 3.0}


def test_the_effective_number_of_predicted_classes():
    assert effective_classes(torch.tensor([0, 0, 3, 3])) == pytest.approx(2)
    assert effective_classes(torch.tensor([0, 0, 0])) == pytest.approx(1)


def test_the_note_says_what_collapsed_and_what_may_prevent_it():
    guard = CollapseGuard(None)
    guard.best_epoch = 1
    before = {"effective_classes": 4.0, "infomax": 1.0}
    note = guard._note([before, before, {"epoch": 2, "effective_classes": 1.5, "infomax": 0.25}])
    assert (note.code, note.setting, note.level) == ("collapse", "lr", "warning")
    assert str(note) == (
        "epoch 2 collapsed: the effective number of predicted classes fell from 4.0 before training to 1.5. "
        "Training ends with the model of epoch 1, whose InfoMax is the highest; a smaller "
        "`lr` may prevent it, and where small images are shifted `padding=0`"
    )
