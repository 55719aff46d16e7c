"""A network that was not built here becomes features and a head; what gives no logits is named."""

import copy
from functools import partial

import pytest
import timm
import torch
from torch import nn
from torchvision import models

from tests.support.networks import transformer
from tests.support.refusals import one_line
from tllib_ancon.models import CosineHead
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.models.classifier import NetworkClassifier, as_classifier
from tllib_ancon.training.learning import choose_adapted_parameters

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def small_network(num_classes=5):
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()
    pooled = nn.AdaptiveAvgPool2d(2), nn.Flatten()
    hidden = nn.Linear(32, 6), nn.ReLU(), nn.Dropout()
    return nn.Sequential(*convolution, *pooled, *hidden, nn.Linear(6, num_classes))


def vit():
    torch.manual_seed(0)
    return timm.create_model("test_vit", num_classes=7, img_size=32, qkv_bias=True)


def resnet():
    torch.manual_seed(0)
    return models.resnet18(num_classes=7)


NETWORKS = {
    "torchvision": (resnet, "fc", 512),
    "timm": (vit, "head", 64),
    "sequential": (small_network, "8", 6),
    "the token of the class and the mean of the others": (partial(transformer, "Dinov2"), "classifier", 32),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_last_linear_is_the_head_and_the_features_enter_it(kind):
    build, name, width = NETWORKS[kind]
    network = build()
    expected = copy.deepcopy(network).eval()(IMAGES)
    expected = getattr(expected, "logits", expected)
    classifier = as_classifier(network, probe=IMAGES)
    assert isinstance(classifier, NetworkClassifier)
    assert classifier.head_name == name
    assert classifier.features_dim == width
    assert classifier.num_classes == expected.shape[1]
    assert classifier.head is network.get_submodule(name)
    assert torch.equal(classifier.eval().predict(IMAGES)[0], expected)
    for mode in (True, False):
        logits, features = classifier.train(mode).predict(IMAGES)
        assert features.shape == (len(IMAGES), width)
        torch.testing.assert_close(classifier.head(features), logits, rtol=0, atol=0)


def test_the_backbone_learns_at_a_tenth_of_the_heads_rate():
    network = small_network()
    groups = as_classifier(network, probe=IMAGES).get_parameters(0.01)
    assert [group["lr"] for group in groups] == pytest.approx([0.001, 0.01])
    of_the_head = {*network[8].parameters()}
    assert {*groups[1]["params"]} == of_the_head
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    assert [group["lr"] for group in as_classifier(network, probe=IMAGES, finetune=False).get_parameters()] == [1, 1]


def test_shared_weights_learn_once():
    tied = nn.Sequential(nn.Flatten(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12))
    tied[3].weight = tied[1].weight
    classifier = as_classifier(tied, probe=torch.zeros(2, 3, 2, 2))
    torch.optim.SGD(classifier.get_parameters(0.1))  # refuses a parameter in two groups


def test_a_head_by_name():
    network = small_network()
    classifier = as_classifier(network, head="8", probe=IMAGES)
    assert as_classifier(classifier, IMAGES) is classifier
    assert classifier.head is network[8]
    network[8].spare = nn.Linear(12, 3)
    assert as_classifier(network, probe=IMAGES).head is network[8]
    for head, said in {
        "5": "returns for .* are not the model.s logits",
        "9": "unknown module of the model '9'",
        "0": "returns for .* are not the model.s logits",
        "8.spare": "returns for .* are not the model.s logits",
    }.items():
        with one_line(said):
            as_classifier(network, head=head, probe=IMAGES)


def no_linear():
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Gated(nn.Module):
    """As in squeeze-and-excitation: a Linear on (B, D) within the network, logits from a convolution."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(3, 3)
        self.logits = no_linear()

    def forward(self, images):
        gates = self.gate(images.mean((2, 3))).sigmoid()
        return self.logits(images * gates[:, :, None, None])


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 5)

    def forward(self, images):
        return self.head(images.flatten(2).transpose(1, 2)).mean(1)


def convolution():
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 5, 1), nn.Flatten())


def cosine():
    head = CosineHead(torch.randn(5, 8))
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


def tempered():
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5), nn.LogSoftmax(1))


@pytest.mark.parametrize(
    ("build", "name", "width"),
    [(convolution, "1", 3), (cosine, "3", 8), (tempered, "2", 3)],
)
def test_a_head_is_what_gives_the_logits(build, name, width):
    network = build()
    classifier = as_classifier(network, probe=IMAGES)
    assert classifier.head_name == name
    assert classifier.features_dim == width
    copied = copy.deepcopy(classifier)
    BatchNormPolicy().set_mode(copied)
    logits, features = copied(IMAGES)
    assert features.shape == (4, width)
    torch.testing.assert_close(classifier.head(features).softmax(1), logits.softmax(1))
    assert {*classifier.head.parameters()} == {*network.get_submodule(name).parameters()}
    again = as_classifier(network, head=name, probe=IMAGES)
    assert again.head_name == name
    assert again.features_dim == width


@pytest.mark.parametrize("build", [no_linear, Gated, Tokens])
def test_a_network_without_a_linear_head_has_logits_alone(build):
    network = build()
    with one_line("5 columns, which may be features"):
        as_classifier(network, probe=IMAGES)
    classifier = as_classifier(network, probe=IMAGES, num_classes=5)
    assert classifier.head is None
    assert classifier.features_dim is None
    assert classifier.num_classes == 5
    BatchNormPolicy().set_mode(classifier)
    logits, features = classifier(IMAGES)
    assert logits.shape == (4, 5)
    assert features.shape == (4, 0)
    choose_adapted_parameters(classifier, "all-but-head")
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert [group["lr"] for group in classifier.get_parameters()] == [0.1]


def test_images_are_converted_to_the_networks_type():
    assert as_classifier(small_network().double(), IMAGES).features_dim == 6
    assert as_classifier(small_network().bfloat16(), IMAGES).features_dim == 6
