"""Training that collapses stops, and the model before the collapse is handed out."""

from functools import cache

import pytest
import torch
from torch import nn

from tests.networks import fit
from tests.training.small import EPOCHS, adapt
from tllib_ancon.training.collapse import Collapse, Diversity, has_collapsed

TOO_HIGH = {"method": "ancon-auto", "lr": 500.0, "step_change": None}
GENERATOR = torch.Generator().manual_seed(0)
CENTRES = torch.randn(3, 3, 4, 4, generator=GENERATOR)
LABELS = torch.arange(48) % 3
IMAGES = CENTRES[LABELS] + 2 * torch.randn(48, 3, 4, 4, generator=GENERATOR)


@cache
def source_model():
    torch.manual_seed(0)
    hidden = nn.Linear(48, 6), nn.ReLU()
    network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(6, 3))
    return fit(network, [(IMAGES, LABELS)] * 25)


def collapsing(labels=(0, 1, 2) * 16, **settings):
    """A run whose learning rate is too high for its source model."""
    return adapt(source_model(), IMAGES, labels=labels, **TOO_HIGH, **settings)


def test_the_model_before_the_collapse_is_handed_out_and_a_line_says_so(capsys):
    result = collapsing(quiet=False)
    last = result.metrics[-1]
    assert last["epoch"] < EPOCHS
    assert last["accuracy"] == result.metrics[-2]["accuracy"]
    assert last["infomax_collapsed"] < 0.5 * result.metrics[0]["infomax"]
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "collapsed" in line)
    assert f"{result.metrics[0]['infomax']:.2f}" in line
    assert f"{last['infomax_collapsed']:.2f}" in line
    is_right = result.model(IMAGES).argmax(1) == LABELS
    assert 100 * is_right.float().mean().item() == pytest.approx(last["accuracy"])
    unlabelled = collapsing(labels=False)
    assert len(result.metrics) == len(unlabelled.metrics)
    for name, tensor in result.model.state_dict().items():
        torch.testing.assert_close(tensor, unlabelled.model.state_dict()[name])


def test_training_that_does_not_collapse_goes_on():
    settings = {**TOO_HIGH, "lr": 0.01}
    assert len(adapt(source_model(), IMAGES, **settings).metrics) == 1 + EPOCHS


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


def test_the_advice_names_the_mixed_statistics_where_there_are_some():
    begun = {"infomax_before": 1.0, "effective_classes_before": 4.0}
    end = {"infomax": 0.1, "effective_classes": 1.0}
    before = {"infomax": 1.0, "effective_classes": 4.0}
    advice = {0.5: "`batch_norm=target` in place of statistics mixed with weight 0.50", 0.0: "a smaller `lr`"}
    for weight, beginning in advice.items():
        collapse = Collapse.in_record([before, {**before, **begun, "batch_norm_share": weight}, end])
        assert f"the model before this epoch; {beginning}" in collapse.line(2)
