import math

import pytest
import torch
from torch import Tensor, nn

from tests.models.test_checkpoints import Backbone
from tests.self_training.naive import softmax
from tllib_ancon.models.pooling import _AveragePool

K, D, B = 4, 6, 5


def outputs(seed: int = 0, features_dim: int = D) -> list[Tensor]:
    """Logits and features of the source, then of the target."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(B, K), (B, features_dim)] * 2
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def naive_mdd(margin: float, logits_s, adversarial_s, logits_t, adversarial_t) -> float:
    """Zhang et al., ICML 2019, with TLLib's shift of the logarithm; what is minimised."""
    total = 0.0
    for main, adversarial in zip(logits_s.tolist(), adversarial_s.tolist(), strict=True):
        total -= margin * math.log(softmax(adversarial)[main.index(max(main))]) / B
    for main, adversarial in zip(logits_t.tolist(), adversarial_t.tolist(), strict=True):
        total -= math.log(min(1.0, 1 - softmax(adversarial)[main.index(max(main))] + 1e-6)) / B
    return total


def naive_cdan(discriminate, entropy_conditioning: bool, logits_s, features_s, logits_t, features_t) -> float:
    """Long et al., NeurIPS 2018: the discriminator's loss on the products of features and predictions."""
    rows, weights, labels = [], [], []
    for logits, features, label in ((logits_s, features_s, 1), (logits_t, features_t, 0)):
        for row, feature in zip(logits.tolist(), features.tolist(), strict=True):
            probabilities = softmax(row)
            entropy = -sum(p * math.log(p + 1e-5) for p in probabilities)
            rows.append([p * f for p in probabilities for f in feature])
            weights.append(1 + math.exp(-entropy))
            labels.append(label)
    scale = len(weights) / sum(weights)
    total = 0.0
    for probability, weight, label in zip(discriminate(rows), weights, labels, strict=True):
        loss = -math.log(probability if label else 1 - probability)
        total += loss * (weight * scale if entropy_conditioning else 1)
    return total / len(rows)


@pytest.mark.parametrize("margin", [1.0, 4.0])
def test_mdd_is_the_formula_with_the_sign_of_a_loss(toolkit, margin):
    batch = outputs(features_dim=K)
    assert toolkit.mdd(margin)(*batch).item() == pytest.approx(naive_mdd(margin, *batch), rel=1e-5)


@pytest.mark.parametrize("entropy_conditioning", [False, True])
def test_cdan_is_the_formula(toolkit, entropy_conditioning):
    loss = toolkit.cdan(K, D, entropy_conditioning=entropy_conditioning, hidden=8)
    batch = outputs()
    value = loss(*batch).item()

    def discriminate(rows: list[list[float]]) -> list[float]:
        return loss.loss.domain_discriminator(torch.tensor(rows)).flatten().tolist()

    assert value == pytest.approx(naive_cdan(discriminate, entropy_conditioning, *batch), rel=1e-4)


def test_the_randomised_map_is_the_formula(toolkit):
    """dalib multiplies from the wrong side and fails for every batch."""
    loss = toolkit.cdan(K, D, randomized=True, randomized_dim=16, hidden=8)
    batch = outputs()
    value = loss(*batch).item()
    random_map = loss.loss.map
    g = torch.cat((batch[0], batch[2])).softmax(1).detach()
    f = torch.cat((batch[1], batch[3])).detach()
    rows = torch.einsum("ni,id->nd", f, random_map.Rf) * torch.einsum("nk,kd->nd", g, random_map.Rg) / math.sqrt(16)
    probabilities = loss.loss.domain_discriminator(rows).flatten()
    labels = torch.cat((torch.ones(B), torch.zeros(B)))
    assert value == pytest.approx(nn.functional.binary_cross_entropy(probabilities, labels).item(), rel=1e-4)


def test_a_resumed_randomised_loss_is_the_same_loss(toolkit):
    options = {"randomized": True, "randomized_dim": 16, "hidden": 8}
    first, second = toolkit.cdan(K, D, **options), toolkit.cdan(K, D, **options)
    assert first(*outputs()).item() != second(*outputs()).item()
    second.load_state_dict(first.state_dict())
    assert first.eval()(*outputs()).item() == second.eval()(*outputs()).item()


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("kind", ["cdan", "mdd"])
def test_classifiers_pool_return_two_outputs_in_training_only_and_have_tllibs_rates(toolkit, kind, flat):
    backbone = Backbone()
    if flat:
        backbone.layers.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
    classifier = toolkit.classifier(kind, backbone, K, width=8, pool_layer=_AveragePool(), finetune=flat)
    images = torch.randn(2, 3, 8, 8)
    logits, second = classifier.train()(images)
    assert logits.shape == (2, K)
    assert second.shape == ((2, 8) if kind == "cdan" else (2, K))
    assert classifier.eval()(images).shape == (2, K)
    groups = [{**group, "params": list(group["params"])} for group in classifier.get_parameters(base_lr=2.0)]
    assert {*groups[0]} == {"params", "lr"}
    assert [group["lr"] for group in groups[:3]] == [0.2 if flat else 2.0, 2.0, 2.0]
    grouped = [parameter for group in groups for parameter in group["params"]]
    assert {id(parameter) for parameter in grouped} == {id(p) for p in classifier.parameters()}
    assert {id(p) for p in groups[0]["params"]} == {id(p) for p in classifier.backbone.parameters()}
