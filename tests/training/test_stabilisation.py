"""The optimiser and its schedule, batch-norm by other statistics, and what selects an epoch."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import tllib_ancon
from tests.conftest import REFUSED
from tests.end_to_end.killable import differences
from tests.training.small import adapt, network
from tests.training.test_frozen import transformer
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.models.classifier import as_classifier
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.loop import _create_optimizer, _power_decay

LAYERS = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.LayerNorm(6), nn.Linear(6, 3))
BOTH = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.LayerNorm(6), nn.BatchNorm1d(6), nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        (LAYERS, {}, ("adamw", 2e-4)),
        (LAYERS, {"optimizer": "sgd"}, ("sgd", 0.01)),
        (LAYERS, {"lr": 0.02}, ("adamw", 0.02)),
        (BOTH, {}, ("sgd", 0.01)),
        (network(), {}, ("sgd", 0.01)),
        (network(), {"batch_norm": "source"}, ("sgd", 0.001)),
        (network(), {"optimizer": "adamw", "batch_norm": "source"}, ("adamw", 2e-4)),
    ],
    ids=str,
)
def test_the_network_decides_what_was_not_given(model: nn.Module, settings: dict, expected: tuple) -> None:
    config = adapt(model, epochs=1, **settings).config
    assert (config.optimizer, config.lr) == expected


def test_a_source_model_learns_by_sgd_unless_it_is_asked_for() -> None:
    assert (PretrainConfig().optimizer, PretrainConfig().lr) == ("sgd", 0.01)
    assert PretrainConfig(optimizer="adamw").lr == 2e-4
    assert PretrainConfig(optimizer="adamw", lr=0.1).lr == 0.1


def rates(model: nn.Module, **settings: Any) -> dict[str, tuple[float, float]]:
    """Name of a parameter of the model -> its rate and weight decay."""
    classifier, config = as_classifier(model, probe=torch.zeros(2, 3, 16, 16)), AdaptConfig(**settings)
    optimizer = _create_optimizer(classifier.get_parameters(1.0), config, classifier)
    found = {p: (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    return {name: found[parameter] for name, parameter in model.named_parameters()}


def test_adamw_decays_no_norm_and_no_bias() -> None:
    found = rates(transformer(), optimizer="adamw", weight_decay=0.3)
    for name, (_, decay) in found.items():
        assert decay == (0.0 if "norm" in name or name.endswith("bias") else 0.3), name
    assert {decay for _, decay in rates(transformer(), weight_decay=0.3).values()} == {0.3}


def test_the_rate_decays_by_a_power() -> None:
    optimizer = _create_optimizer([{"params": [nn.Parameter(torch.zeros(1))], "lr": 1.0}], AdaptConfig(), nn.Module())
    schedule = _power_decay(optimizer, AdaptConfig(), 20)
    rates = []
    for _ in range(20):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([(1 + 10 * step / 20) ** -0.75 for step in range(20)])


def test_statistics_of_the_source_model_stay_and_mixed_ones_lie_between() -> None:
    start = network()
    settings: dict[str, Any] = {"lr": 1e-8, "criterion": "last", "epochs": 1}
    models = {name: adapt(start, batch_norm=name, **settings).model for name in ("source", "mixed", "target")}
    mean = {name: model[2].running_mean for name, model in models.items()}
    assert torch.equal(mean["source"], start[2].running_mean)
    assert not torch.equal(mean["mixed"], mean["source"])
    scales = {name: float((model[2].weight - start[2].weight).detach().norm()) for name, model in models.items()}
    assert scales["mixed"] > 1000 * max(scales["source"], scales["target"])
    with pytest.raises(UserError, match="batch_norm_share"):
        adapt(start, batch_norm_share=0.1)


@pytest.mark.parametrize(("spread", "even"), [(0.5, False), (5.0, False), (0.5, True)])
def test_the_source_keeps_more_of_its_statistics_the_less_even_classes_are_and_the_less_has_shifted(
    spread: float, even: bool
) -> None:
    start, images = network(), spread * torch.randn(40, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    settings: dict[str, Any] = {"batch_norm": "mixed", "lr": 1e-12, "criterion": "last", "epochs": 1}
    target = copy.deepcopy(start)
    with estimated_statistics(target):
        target(images)
    if even:
        with torch.no_grad():
            start[-1].bias -= target.eval()(images).mean(0)
            target[-1].bias.copy_(start[-1].bias)
    half = copy.deepcopy(start)
    with estimated_statistics(half, 0.5):
        half(images)
    agreement = float((half.eval()(images).argmax(1) == start(images).argmax(1)).float().mean())
    shares = target.eval()(images).argmax(1).bincount(minlength=3) / len(images)
    unevenness = float((shares - 1 / 3).abs().sum())
    share = max(0.5, unevenness / (unevenness + 1 - agreement))
    found = adapt(start, images, **settings)
    assert found.metrics[1]["batch_norm_share"] == (0 if even else pytest.approx(share))
    assert found.summary["assessment"]["indicators"]["agreement"] == pytest.approx(agreement)
    given = adapt(start, images, batch_norm_share=found.metrics[1]["batch_norm_share"], **settings)
    assert differences(dict(found.model.state_dict()), dict(given.model.state_dict())) == []
    assert "agreement" not in given.summary["assessment"]["indicators"]


PLAIN = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.Linear(6, 3))
ONE_LAYER = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
REFUSED_OF_A_NETWORK = [
    *((None, *row) for row in REFUSED["stabilisation"]),
    *(
        (LAYERS, {name: value, "epochs": 1}, f"`{name}={value}` is about .* this network has no batch-norm")
        for name, value in (("batch_norm", "source"), ("method", "adabn"))
    ),
    (PLAIN, {"adapted": "norm-affine"}, "no parameter to train with `adapted=norm-affine`"),
    (ONE_LAYER, {"adapted": "all-but-head"}, "no parameter to train with `adapted=all-but-head`"),
]


@pytest.mark.parametrize(("model", "settings", "message"), REFUSED_OF_A_NETWORK, ids=lambda value: str(value)[:40])
def test_what_is_refused(model: nn.Module | None, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
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
def test_what_trains_nothing_takes_no_setting_of_training(name: str, value: Any, other_output: bool) -> None:
    model = nn.Sequential(nn.BatchNorm2d(3)) if other_output else None
    with pytest.raises(UserError, match=f"`{name}={value}` has no effect with `method=adabn`, which trains nothing"):
        adapt(model, method="adabn", epochs=1, **{name: value})
    adapt(model, method="adabn", epochs=1)


@pytest.mark.parametrize("setting", [{"lr": 0.5}, {"optimizer": "sgd"}, {"momentum": 0.1}])
def test_nor_does_a_stream_that_trains_nothing(setting: dict[str, Any]) -> None:
    ((name, value),) = setting.items()
    with pytest.raises(UserError, match=f"`{name}={value}` has no effect with `method=adabn`"):
        tllib_ancon.online(network(), method="adabn", **setting)


def test_what_is_not_refused() -> None:
    result = adapt(method="adabn", epochs=1)
    assert (result.config.lr, result.config.optimizer) == (None, None)
    tllib_ancon.adapt(network(), torch.randn(24, 3, 4, 4), config=result.config)
    adapt(LAYERS, epochs=1, batch_norm="mixed")
    adapt(method="adabn", epochs=1, batch_norm="mixed")


@pytest.mark.parametrize(
    ("criterion", "images", "adapted", "batch"), [("infomax", 50, 45, 45), ("last", 50, 50, 50), ("none", 100, 100, 64)]
)
def test_what_selects_nothing_holds_nothing_out_and_a_batch_fits(
    criterion: str, images: int, adapted: int, batch: int, monkeypatch
) -> None:
    seen: set[int] = set()
    step = Adaptation._step

    def seeing(self: Adaptation, batch: Any) -> Any:
        seen.update(batch[0][0].tolist())
        return step(self, batch)

    monkeypatch.setattr(Adaptation, "_step", seeing)
    result = adapt(images=images, criterion=criterion, epochs=6, batch_size=None)
    assert (len(seen), result.summary["held_out"]) == (adapted, images - adapted)
    assert result.config.to_dict()["batch_size"] == batch
    with pytest.raises(UserError, match=f"{adapted} images to train on are fewer than one batch of 128"):
        adapt(images=images, criterion=criterion, batch_size=128)
