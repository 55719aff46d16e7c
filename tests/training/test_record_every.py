"""A record of some epochs has their scores, costs no other pass and changes nothing else."""

import pytest

from tests.end_to_end.killable import differences
from tests.refusals import one_line
from tests.training.small import EPOCHS, adapt, without
from tllib_ancon.training.adaptation import Adaptation

BETWEEN = {"lr": 1.0}
"""With which epoch 2 of 4 is selected."""
WITH_LABELS = {"accuracy", "mean_class_accuracy", "ece", "per_class_accuracy"}


@pytest.fixture
def passes(monkeypatch):
    """The epochs after which the whole target is scored."""
    predict = Adaptation._predict
    epochs = []

    def counted(self, loader, epoch, *arguments):
        if loader is self.target_loaders.target:
            epochs.append(epoch)
        return predict(self, loader, epoch, *arguments)

    monkeypatch.setattr(Adaptation, "_predict", counted)
    return epochs


def recorded(metrics):
    assert all(line.keys() >= WITH_LABELS or not WITH_LABELS & line.keys() for line in metrics)
    return [line["epoch"] for line in metrics if "accuracy" in line]


@pytest.mark.parametrize(("record_every", "due"), [(1, range(5)), (3, (0, 3, 4)), (100, (0, 4))])
def test_start_every_nth_last_and_selected_epoch(passes, record_every, due):
    usual = adapt(**BETWEEN)
    rare = adapt(record_every=record_every, **BETWEEN)
    assert usual.selected_epoch == rare.selected_epoch == 2
    assert recorded(rare.metrics) == sorted({*due, 2})
    assert without(rare.metrics, *WITH_LABELS) == without(usual.metrics, *WITH_LABELS)
    for rarely, always in zip(rare.metrics, usual.metrics, strict=True):
        assert all(rarely[name] == always[name] for name in WITH_LABELS & rarely.keys())
    assert differences(dict(usual.model.state_dict()), dict(rare.model.state_dict())) == []
    assert rare.summary["selected"]["accuracy"] == usual.metrics[2]["accuracy"]
    extra = [] if 2 in due else [EPOCHS]
    assert passes == [*range(EPOCHS + 1), *due, *extra]


def test_without_labels_no_epoch_needs_the_whole_target(passes):
    adapt(record_every=3, labels=False)
    assert passes == []
    with one_line("`record_every` must be"):
        adapt(record_every=0)


def test_what_is_predicted_for_a_file_is_recorded_too(passes, tmp_path):
    result = adapt(record_every=3, log=str(tmp_path / "run"), save_predictions=True, **BETWEEN)
    assert recorded(result.metrics) == passes
    assert {0, 3, 4, result.selected_epoch} <= set(passes)
