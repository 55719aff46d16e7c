"""Diversity of predictions, and the fall of it that is a collapse."""

import pytest
import torch

from tllib_ancon.training.callbacks.guard import CollapseGuard, _has_collapsed
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


@pytest.mark.parametrize(
    ("padding", "share", "best_epoch", "model", "remedy"),
    [
        (
            2,
            0.5,
            0,
            "before training",
            "images that training does not shift (`padding=0`), or a smaller `lr`, may prevent it",
        ),
        (
            0,
            0.5,
            1,
            "of epoch 1",
            'a smaller `lr`, or statistics of the target alone (`batch_norm="target"`), may prevent it',
        ),
        (0, 0.0, 1, "of epoch 1", "a smaller `lr` may prevent it"),
    ],
)
def test_the_note_names_what_may_have_caused_it(padding, share, best_epoch, model, remedy):
    guard = CollapseGuard(None)
    guard.best_epoch = best_epoch
    guard.best_infomax = 0.875
    before = {"effective_classes": 4.0, "infomax": 1.0}
    epochs = [before, {**before, "batch_norm_share": share}, {"epoch": 2, "effective_classes": 1.5, "infomax": 0.25}]
    note = guard._note(epochs, padding)
    assert (note.code, note.setting, note.level) == ("collapse", "lr", "warning")
    assert str(note) == (
        "epoch 2 collapsed: the effective number of predicted classes fell from 4.0 before training to 1.5, InfoMax "
        f"from 1.00 to 0.25. Training ends with the model {model}, whose InfoMax of 0.88 is the highest; {remedy}"
    )
