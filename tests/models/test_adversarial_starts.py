"""What is adapted of a model that CDAN, MDD or DAN left: its head is frozen, its dropout off, its features known."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tests.toolkit.conftest import toolkit  # noqa: F401 (a fixture)
from tllib_ancon import methods
from tllib_ancon.models.backbones import SmallCNN
from tllib_ancon.models.checkpoints import recognize, start_model
from tllib_ancon.models.classifier import BottleneckClassifier, adaptation_mode
from tllib_ancon.models.parameters import choose_adapted_parameters

IMAGES = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
WIDTH = 32


class Dan(nn.Module):
    """TLLib's classifier of dan.py: Linear, ReLU, Dropout, without batch-norm."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone
        self.bottleneck = nn.Sequential(nn.Linear(backbone.out_features, WIDTH), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(WIDTH, 3)


@pytest.fixture(params=["cdan", "mdd", "dan"])
def start(request: pytest.FixtureRequest, toolkit) -> tuple[str, BottleneckClassifier]:  # noqa: F811
    torch.manual_seed(0)
    trained = {
        "cdan": lambda: toolkit.image_classifier(SmallCNN(), 3, WIDTH),
        "mdd": lambda: toolkit.mdd_classifier(SmallCNN(), 3, WIDTH, WIDTH),
        "dan": lambda: Dan(SmallCNN()),
    }[request.param]()
    return request.param, start_model(recognize(trained.state_dict()), SmallCNN(), 3)


def test_the_whole_head_is_frozen_and_the_rest_learns(start) -> None:
    name, model = start
    choose_adapted_parameters(model, "all-but-head")
    frozen = {key for key, parameter in model.named_parameters() if not parameter.requires_grad}
    layers = ("0.", "3.") if name == "mdd" else ("",)
    assert frozen == {f"head.{layer}{kind}" for layer in layers for kind in ("weight", "bias")}
    assert [group["lr"] for group in model.get_parameters(1.0)] == [0.1, 1.0]


def test_features_are_what_the_head_gets(start) -> None:
    _, model = start
    logits, features = adaptation_mode(model).predict(IMAGES)
    assert features.shape == (len(IMAGES), WIDTH)
    assert features.min() == 0  # of a ReLU
    torch.testing.assert_close(model.head(features), logits)


@pytest.mark.parametrize("dropout", [False, True])
def test_pseudo_labels_have_dropouts_noise_only_if_asked(start, dropout: bool) -> None:
    name, model = start
    adaptation_mode(model, dropout)
    first, second = (model.predict(IMAGES)[0] for _ in range(2))
    noisy = dropout and name != "cdan"  # its script has none
    assert torch.equal(first, second) != noisy


def test_without_dropout_nothing_of_the_mode_but_batch_statistics_differs_from_evaluation(start) -> None:
    _, model = start
    adaptation_mode(model)
    modules = [module for module in model.modules() if not list(module.children())]
    training = {type(module) for module in modules if module.training}
    assert nn.BatchNorm2d in training
    assert nn.Dropout not in training


@pytest.mark.parametrize("method", ["ancon", "nrc+ancon", "shot"])
def test_a_step_changes_backbone_and_bottleneck_alone(start, method: str) -> None:
    _, model = start
    choose_adapted_parameters(model, "all-but-head")
    before = copy.deepcopy(dict(model.named_parameters()))
    sizes = {"num_samples": len(IMAGES), "num_classes": 3, "feature_dim": model.features_dim, "total_steps": 1}
    step = methods.create(method, head=model.head, **sizes)
    indices = torch.arange(len(IMAGES))
    with torch.no_grad():
        logits, features = model.eval().predict(IMAGES)
    if step.needs_pass(0):
        step.initialize(0, indices, features, logits)
    optimizer = torch.optim.SGD(model.get_parameters(0.1), lr=0.0)
    adaptation_mode(model)
    step(indices, *model.predict(IMAGES)).backward()
    optimizer.step()
    changed = {key.split(".")[0] for key, value in model.named_parameters() if not torch.equal(value, before[key])}
    assert changed == {"backbone", "bottleneck"}
