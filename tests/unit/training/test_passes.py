"""The whole target is predicted where a record or a file needs it, once an epoch."""

import pytest

from tests.support.small import EPOCHS, adapt
from tllib_ancon.training import adaptation
from tllib_ancon.training.passes import Passes

BETWEEN = {"lr": 1.0}
"""With which epoch 2 of 4 is selected."""


@pytest.fixture
def passes(monkeypatch):
    """The epochs after which the whole target is scored."""
    epochs = []

    class Counted(Passes):
        def target_by_one_view(self):
            epoch = self.predict.__self__.epoch
            if epoch not in epochs:
                epochs.append(epoch)
            return super().target_by_one_view()

    monkeypatch.setattr(adaptation, "Passes", Counted)
    return epochs


def test_labels_score_every_epoch(passes):
    result = adapt(**BETWEEN)
    assert passes == list(range(EPOCHS + 1))
    assert all({"accuracy", "mean_class_accuracy", "ece", "per_class_accuracy"} <= {*line} for line in result.metrics)


def test_without_labels_no_epoch_needs_the_whole_target(passes, tmp_path):
    adapt(labels=False, log=tmp_path, **BETWEEN)
    assert passes == []
