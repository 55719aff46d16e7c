"""Optimiser, schedule, batch-norm statistics and hold-out are as documented, and what has no effect is refused."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.conftest import REFUSED
from tests.end_to_end.killable import differences
from tests.support.refusals import one_line
from tests.training.small import adapt, network
from tests.training.test_frozen import transformer
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.models.batch_norm import estimated_statistics

LAYERS = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.LayerNorm(6), nn.Linear(6, 3))


def test_a_source_model_learns_by_sgd_unless_it_is_asked_for():
    assert PretrainConfig().optimizer == "sgd"
    assert PretrainConfig().lr == 0.01
    assert PretrainConfig(optimizer="adamw").lr == 2e-4
    assert PretrainConfig(optimizer="adamw", lr=0.1).lr == 0.1


def test_adamw_decays_no_norm_and_no_bias(steps):
    adapt(transformer(), torch.randn(8, 3, 16, 16), epochs=1, optimizer="adamw", weight_decay=0.3)
    for group in steps[0]:
        dimensions = {min(parameter.ndim, 2) for parameter in group["params"]}
        assert dimensions <= {2 if group["weight_decay"] == 0.3 else 1}
    assert {group["weight_decay"] for group in steps[0]} == {0.0, 0.3}
    adapt(transformer(), torch.randn(8, 3, 16, 16), epochs=1, optimizer="sgd", weight_decay=0.3)
    assert {group["weight_decay"] for group in steps[-1]} == {0.3}


def test_the_rate_decays_by_a_power(steps):
    adapt(lr=0.5, epochs=4, batch_size=4, criterion="last")
    rates = [group["lr"] for ((group),) in steps]
    progress = np.arange(24) / 24
    assert rates == pytest.approx(0.05 * (1 + 10 * progress) ** -0.75)


def test_statistics_of_the_source_model_stay_and_mixed_ones_lie_between():
    start = network()
    settings = {"lr": 1e-8, "criterion": "last", "epochs": 1}
    source, mixed = (adapt(start, batch_norm=name, **settings).model for name in ("source", "mixed"))
    assert torch.equal(source[2].running_mean, start[2].running_mean)
    assert not torch.equal(mixed[2].running_mean, start[2].running_mean)


@pytest.mark.parametrize("is_even", [False, True])
def test_uneven_predictions_mix_statistics_and_the_share_is_stated(is_even):
    """Its formula is tested beside ``BatchNormPolicy``."""
    start = network()
    images = torch.randn(40, 3, 4, 4, generator=torch.Generator().manual_seed(1)) / 2
    if is_even:
        target = copy.deepcopy(start)
        with estimated_statistics(target):
            target(images)
        start[-1].bias.data -= target.eval()(images).mean(0)
    settings = {"batch_norm": "mixed", "lr": 1e-12, "criterion": "last", "epochs": 1}
    chosen = adapt(start, images, **settings)
    share = chosen.metrics[1]["batch_norm_share"]
    assert (share == 0) == is_even
    assert 0 < chosen.metrics[1]["agreement"] <= 1
    given = adapt(start, images, **{**settings, "batch_norm": share})
    assert differences(dict(chosen.model.state_dict()), dict(given.model.state_dict())) == []
    assert "agreement" not in given.metrics[1]


PLAIN = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.Linear(6, 3))
ONE_LAYER = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
REFUSED_OF_A_NETWORK = [
    *((None, *row) for row in REFUSED["stabilisation"]),
    (LAYERS, {"batch_norm": "source"}, "`batch_norm=source` is about .* this network has no batch-norm"),
    (LAYERS, {"method": "adabn", "epochs": 1}, "`method=adabn` is about .* this network has no batch-norm"),
    (PLAIN, {"adapted": "norm-affine"}, "no parameter to train with `adapted=norm-affine`"),
    (ONE_LAYER, {"adapted": "all-but-head"}, "no parameter to train with `adapted=all-but-head`"),
]


@pytest.mark.parametrize(("model", "settings", "message"), REFUSED_OF_A_NETWORK, ids=lambda value: str(value)[:40])
def test_what_is_refused(model, settings, message):
    with one_line(message):
        adapt(model, **settings)


OF_TRAINING = [
    ("optimizer", "adamw"),
    ("lr", 0.5),
    ("lr_gamma", 1.0),
    ("lr_decay", 0.5),
    ("momentum", 0.1),
    ("weight_decay", 0.1),
    ("step_change", 0.05),
    ("adapted", "norm-affine"),
    ("dropout", True),
]


@pytest.mark.parametrize(("name", "value"), OF_TRAINING)
@pytest.mark.parametrize("other_output", [False, True])
def test_what_trains_nothing_takes_no_setting_of_training(name, value, other_output):
    model = nn.Sequential(nn.BatchNorm2d(3)) if other_output else None
    with one_line(f"`{name}={value}` has no effect with `method=adabn`, which trains nothing"):
        adapt(model, method="adabn", epochs=1, **{name: value})
    if name in ("lr", "optimizer", "momentum"):
        with one_line(f"`{name}={value}` has no effect with `method=adabn`"):
            tllib_ancon.online(network(), method="adabn", **{name: value})


def test_what_is_not_refused():
    result = adapt(method="adabn", epochs=1)
    assert result.config.lr is None
    assert result.config.optimizer is None
    tllib_ancon.adapt(network(), torch.randn(24, 3, 4, 4), config=result.config)
    adapt(LAYERS, epochs=1, batch_norm="mixed")
    adapt(method="adabn", epochs=1, batch_norm="mixed")


@pytest.mark.parametrize(
    ("criterion", "images", "adapted", "batch"), [("infomax", 50, 45, 45), ("last", 50, 50, 50), ("last", 100, 100, 64)]
)
def test_what_selects_nothing_holds_nothing_out_and_a_batch_fits(criterion, images, adapted, batch, steps):
    result = adapt(images=images, criterion=criterion, epochs=6, batch_size=None)
    assert result.summary["held_out"] == images - adapted
    assert result.config.to_dict()["batch_size"] == batch
    assert len(steps) == 6 * (adapted // batch)
    with one_line(f"{adapted} images to train on are fewer than one batch of 128"):
        adapt(images=images, criterion=criterion, batch_size=128)
