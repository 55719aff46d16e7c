"""A training that collapses ends with its best model, and no adaptation falls far below batch-norm statistics alone."""

import copy

import numpy as np
import pytest
from torch import nn

import tllib_ancon
from tests.support.falls import CLASSES, IMAGES, LABELS, LOADED, collapsing, striped_source_model, stripes
from tests.support.small import EPOCHS


def test_the_model_with_the_highest_infomax_is_handed_out_after_a_collapse():
    result = collapsing()
    last = result.metrics[-1]
    assert last["epoch"] < EPOCHS
    assert last["infomax_collapsed"] < 0.5 * result.metrics[0]["infomax"]
    best = max(result.metrics[:-1], key=lambda epoch: epoch["infomax"])
    assert last["infomax"] == best["infomax"]
    assert last["accuracy"] == best["accuracy"]
    assert "collapse" in {note.code for note in result.notes}
    is_right = result.model(IMAGES).argmax(1) == LABELS
    assert 100 * is_right.float().mean().item() == pytest.approx(last["accuracy"])


def slow_source_model(momentum):
    """Its running statistics follow slowly, as those of torchvision's MobileNetV3, or are a mean over all batches."""
    model = copy.deepcopy(striped_source_model())
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = momentum
    return model


def lines_about_statistics(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if "statistics" in line]


@pytest.mark.parametrize("momentum", [0.01, None])
def test_statistics_that_lag_behind_the_training_get_a_line_whose_advice_helps(momentum, capsys):
    target = stripes(288, 0.3, 1)
    labels = np.arange(288) % CLASSES
    settings = {**LOADED, "quiet": False, "method": "self-training", "epochs": 2, "seed": 0, "threads": 1}
    slow = tllib_ancon.adapt(slow_source_model(momentum), target, labels=labels, **settings)
    (line,) = lines_about_statistics(capsys)
    assert '`batch_norm="mixed"`' in line
    assert "statistics-lag" in {note.code for note in slow.notes}
    mixed = tllib_ancon.adapt(slow_source_model(momentum), target, labels=labels, batch_norm="mixed", **settings)
    assert not lines_about_statistics(capsys)
    assert slow.metrics[-1]["accuracy"] < 50 < 90 < mixed.metrics[-1]["accuracy"]
