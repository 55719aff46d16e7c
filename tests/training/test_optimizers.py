"""Which optimiser learns which parameter at which rate: by the network, its depth and what was asked for."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.training.small import adapt, network
from tests.training.test_frozen import transformer
from tllib_ancon.config import AdaptConfig, PretrainConfig
from tllib_ancon.models.classifier import as_classifier
from tllib_ancon.training.loop import create_optimizer

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
    optimizer = create_optimizer(classifier.get_parameters(1.0), config, classifier)
    found = {p: (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    return {name: found[parameter] for name, parameter in model.named_parameters()}


def test_adamw_decays_no_norm_and_no_bias() -> None:
    found = rates(transformer(), optimizer="adamw", weight_decay=0.3)
    for name, (_, decay) in found.items():
        assert decay == (0.0 if "norm" in name or name.endswith("bias") else 0.3), name
    assert {decay for _, decay in rates(transformer(), weight_decay=0.3).values()} == {0.3}


def test_usual_sgd_has_tllibs_groups() -> None:
    model = network()
    classifier = as_classifier(model, probe=torch.zeros(2, 3, 4, 4))
    groups = create_optimizer(classifier.get_parameters(0.01), AdaptConfig(), classifier).param_groups
    assert [(len(group["params"]), group["lr"], group["weight_decay"]) for group in groups] == [
        (4, 0.001, 1e-3),
        (2, 0.01, 1e-3),
    ]
