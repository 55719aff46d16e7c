"""A network that was not built here becomes features and a head; what gives no logits is named."""

import copy
from functools import partial

import pytest
import timm
import torch
from torch import nn

from tests.support.networks import transformer
from tests.support.refusals import one_line
from tllib_ancon.models import CosineHead
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.models.classifier import as_classifier

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def sequence(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), *layers)


NETWORKS = {
    "timm": (partial(timm.create_model, "test_vit", num_classes=7, img_size=32), "head", 64),
    "the token of the class and the mean of the others": (partial(transformer, "Dinov2"), "classifier", 32),
    "two linear layers": (lambda: sequence(nn.Flatten(), nn.Linear(8, 5), nn.Linear(5, 5)), "5", 5),
    "a convolution": (lambda: sequence(nn.Conv2d(8, 5, 1), nn.Flatten()), "3", 8),
    "texts": (lambda: sequence(nn.Flatten(), CosineHead(torch.randn(5, 8))), "4", 8),
    "log-softmax": (lambda: sequence(nn.Flatten(), nn.Linear(8, 5), nn.LogSoftmax(1)), "4", 8),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_head_returns_the_logits_and_the_features_enter_it(kind):
    build, name, width = NETWORKS[kind]
    network = build()
    expected = network.eval()(IMAGES)
    expected = getattr(expected, "logits", expected)
    for head in (None, name):
        classifier = as_classifier(copy.deepcopy(network), IMAGES, head)
        assert classifier.head_name == name
        assert classifier.features_dim == width
        assert classifier.num_classes == expected.shape[1]
        assert torch.equal(classifier.eval().predict(IMAGES)[0], expected)
        BatchNormPolicy().set_mode(classifier)
        logits, features = classifier(IMAGES)
        assert features.shape == (len(IMAGES), width)
        torch.testing.assert_close(classifier.head(features).softmax(1), logits.softmax(1))
        assert {*classifier.head.parameters()} == {*classifier.network.get_submodule(name).parameters()}


def test_the_backbone_learns_at_a_tenth_of_the_heads_rate_and_shared_weights_once():
    tied = nn.Sequential(nn.Flatten(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12), nn.Linear(12, 5))
    tied[3].weight = tied[1].weight
    images = torch.zeros(2, 3, 2, 2)
    backbone, head = as_classifier(tied, images).get_parameters(0.01)
    assert [backbone["lr"], head["lr"]] == pytest.approx([0.001, 0.01])
    assert {*head["params"]} == {*tied[4].parameters()}
    assert len(backbone["params"]) == 3
    assert [group["lr"] for group in as_classifier(tied, images, finetune=False).get_parameters()] == [1, 1]


def test_a_name_that_is_no_module():
    with one_line("unknown module of the model '9'"):
        as_classifier(sequence(nn.Flatten(), nn.Linear(8, 5)), IMAGES, "9")


class Gated(nn.Module):
    """As in squeeze-and-excitation: a Linear on (B, D) within the network, logits from a convolution."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(3, 3)
        self.logits = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, images):
        gates = self.gate(images.mean((2, 3))).sigmoid()
        return self.logits(images * gates[:, :, None, None])


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 5)

    def forward(self, images):
        return self.head(images.flatten(2).transpose(1, 2)).mean(1)


@pytest.mark.parametrize("build", [Gated, Tokens])
def test_a_network_without_a_linear_head_has_logits_alone(build):
    with one_line("5 columns, which may be features"):
        as_classifier(build(), IMAGES)
    classifier = as_classifier(build(), IMAGES, num_classes=5)
    assert classifier.head is None
    assert classifier.features_dim is None
    assert classifier.num_classes == 5
    BatchNormPolicy().set_mode(classifier)
    logits, features = classifier(IMAGES)
    assert logits.shape == (4, 5)
    assert features.shape == (4, 0)
    assert [group["lr"] for group in classifier.get_parameters()] == [0.1]
