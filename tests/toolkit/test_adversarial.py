from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.toolkit.conftest import requires_tllib
from tllib_ancon.errors import UserError
from tllib_ancon.pooling import AveragePool
from tllib_ancon.toolkit import find
from tllib_ancon.toolkit.adversarial import AdversarialLoss, GradientReversal

K, D, B = 4, 6, 5


def outputs(seed: int = 0, features_dim: int = D) -> list[Tensor]:
    """Logits and features of the source, then of the target."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(B, K), (B, features_dim)] * 2
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


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
    rows = [
        [
            sum(f[n, i] * random_map.Rf[i, d] for i in range(D))
            * sum(g[n, k] * random_map.Rg[k, d] for k in range(K))
            / math.sqrt(16)
            for d in range(16)
        ]
        for n in range(2 * B)
    ]
    probabilities = loss.loss.domain_discriminator(torch.tensor(rows)).flatten()
    labels = torch.cat((torch.ones(B), torch.zeros(B)))
    assert value == pytest.approx(nn.functional.binary_cross_entropy(probabilities, labels).item(), rel=1e-4)


@requires_tllib
@pytest.mark.parametrize("options", [{}, {"entropy_conditioning": True}, {"randomized": True}])
def test_cdan_of_both_toolkits_is_equal(options):
    losses = [find(name).cdan(K, D, randomized_dim=16, hidden=8, **options) for name in ("tllib", "dalib")]
    values = list(losses[0].state_dict().values())
    assert len(values) == len(losses[1].state_dict())
    for ours, theirs in zip(losses[1].state_dict().values(), values, strict=True):
        ours.copy_(theirs)
    gradients = []
    for loss in losses:
        GradientReversal(loss).load_state_dict({"iterations": 500})
        batch = outputs()
        value = loss(*batch)
        value.backward()
        gradients.append([value, batch[1].grad, batch[3].grad])
    for first, second in zip(*gradients, strict=True):
        assert torch.allclose(first, second, atol=1e-7)


@requires_tllib
def test_mdd_of_both_toolkits_is_equal():
    results = []
    for name in ("tllib", "dalib"):
        batch = outputs(features_dim=K)
        value = find(name).mdd(3.0)(*batch)
        value.backward()
        results.append([value, batch[1].grad, batch[3].grad])
    for first, second in zip(*results, strict=True):
        assert torch.allclose(first, second, atol=1e-6)


def test_half_precision_is_computed_in_single(toolkit):
    """torch refuses binary cross-entropy under autocast; half-precision probabilities would be too coarse."""
    loss = toolkit.cdan(K, D, hidden=8)
    batch = outputs()
    expected = loss(*batch)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(*(output.bfloat16() for output in batch))
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=0.02)


def test_features_get_reversed_gradients_that_grow(toolkit):
    loss = toolkit.cdan(K, D, hidden=8)
    reversal = GradientReversal(loss)
    gradients = {}
    for iterations in (0, 1000, 10**6):
        reversal.load_state_dict({"iterations": iterations})
        batch = outputs()
        loss(*batch).backward()
        gradients[iterations] = batch[1].grad
    plain = outputs()
    g = torch.cat((plain[0], plain[2])).softmax(1).detach()
    f = torch.cat((plain[1], plain[3]))
    rows = (g.unsqueeze(2) * f.unsqueeze(1)).flatten(1)
    labels = torch.cat((torch.ones(B, 1), torch.zeros(B, 1)))
    nn.functional.binary_cross_entropy(loss.loss.domain_discriminator(rows), labels).backward()
    assert gradients[0].abs().max() == 0
    assert torch.allclose(gradients[10**6], -plain[1].grad, atol=1e-6)
    assert torch.allclose(gradients[1000], -(2 / (1 + math.exp(-1)) - 1) * plain[1].grad, atol=1e-6)


def test_the_warm_up_is_counted_and_can_be_resumed(toolkit):
    loss = toolkit.cdan(K, D, hidden=8)
    reversal = GradientReversal(nn.Linear(2, 2), loss)
    for _ in range(3):
        loss(*outputs())
        reversal.step()
    assert reversal.iterations == 3  # CDAN's layer counted by itself

    classifier = toolkit.mdd_classifier(Backbone(), K, 8, 8)
    reversal = GradientReversal(classifier, toolkit.mdd())
    for _ in range(3):
        classifier(torch.randn(2, 3, 8, 8))
        reversal.step()
    assert reversal.state_dict() == {"iterations": 3}

    resumed = GradientReversal(toolkit.mdd_classifier(Backbone(), K, 8, 8))
    resumed.load_state_dict(reversal.state_dict())
    assert resumed.iterations == 3


def test_without_a_reversal_layer_there_is_nothing_to_resume():
    with pytest.raises(UserError, match="found 0"):
        GradientReversal(nn.Linear(2, 2))


def test_a_resumed_randomised_loss_is_the_same_loss(toolkit):
    options = {"randomized": True, "randomized_dim": 16, "hidden": 8}
    first, second = toolkit.cdan(K, D, **options), toolkit.cdan(K, D, **options)
    assert first(*outputs()).item() != second(*outputs()).item()
    second.load_state_dict(first.state_dict())
    assert first.eval()(*outputs()).item() == second.eval()(*outputs()).item()


def test_the_discriminator_is_scored(toolkit):
    loss = toolkit.cdan(K, D, hidden=8)
    assert loss.domain_accuracy is None
    loss(*outputs())
    assert 0 <= loss.domain_accuracy <= 100
    assert toolkit.mdd().domain_accuracy is None


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda toolkit: toolkit.cdan(0, D), "num_classes must be positive, got 0"),
        (lambda toolkit: toolkit.cdan(K, -1), "features_dim must be positive"),
        (lambda toolkit: toolkit.cdan(K, D, hidden=0), "hidden must be positive"),
        (lambda toolkit: toolkit.mdd(margin=0), "margin must be positive"),
        (lambda toolkit: toolkit.mdd(margin=float("nan")), "margin must be positive"),
        (lambda toolkit: toolkit.image_classifier(Backbone(), K, 0), "bottleneck_dim must be positive"),
        (lambda toolkit: toolkit.mdd_classifier(Backbone(), K, 8, 0), "width must be positive"),
    ],
)
def test_sizes_are_checked(toolkit, build, said):
    with pytest.raises(UserError, match=said):
        build(toolkit)


# Classifiers


class Backbone(nn.Module):
    out_features = 12

    def __init__(self, flat: bool = False):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU())
        self.flat = flat

    def forward(self, images: Tensor) -> Tensor:
        features = self.layers(images)
        return features.mean((2, 3)) if self.flat else features


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("kind", ["image_classifier", "mdd_classifier"])
def test_classifiers_pool_and_return_two_outputs_in_training_only(toolkit, kind, flat):
    classifier = getattr(toolkit, kind)(Backbone(flat), K, bottleneck_dim=8)
    images = torch.randn(2, 3, 8, 8)
    logits, second = classifier.train()(images)
    assert logits.shape == (2, K)
    assert second.shape == ((2, 8) if kind == "image_classifier" else (2, K))
    assert classifier.eval()(images).shape == (2, K)


def test_a_pool_layer_can_be_given(toolkit):
    class Largest(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return features.amax((2, 3))

    images = torch.randn(2, 3, 8, 8)
    for build in (toolkit.image_classifier, toolkit.mdd_classifier):
        given = build(Backbone(), K, 8, pool_layer=Largest())
        default = build(Backbone(), K, 8)
        default.load_state_dict(given.state_dict())
        assert (given.eval()(images) - default.eval()(images)).abs().max() > 0


@pytest.mark.parametrize("finetune", [True, False])
@pytest.mark.parametrize("kind", ["image_classifier", "mdd_classifier"])
def test_parameter_groups_have_tllibs_rates(toolkit, kind, finetune):
    classifier = getattr(toolkit, kind)(Backbone(), K, bottleneck_dim=8, finetune=finetune)
    groups = [{**group, "params": list(group["params"])} for group in classifier.get_parameters(base_lr=2.0)]
    assert {*groups[0]} == {"params", "lr"}
    assert [group["lr"] for group in groups[:3]] == [0.2 if finetune else 2.0, 2.0, 2.0]
    grouped = [parameter for group in groups for parameter in group["params"]]
    assert {id(parameter) for parameter in grouped} == {id(p) for p in classifier.parameters()}
    assert {id(p) for p in groups[0]["params"]} == {id(p) for p in classifier.backbone.parameters()}


def test_the_losses_parameters_are_the_discriminators(toolkit):
    loss = toolkit.cdan(K, D, hidden=8)
    (group,) = loss.get_parameters(base_lr=0.5)
    assert group["lr"] == 0.5
    assert len(group["params"]) == len(list(loss.loss.domain_discriminator.parameters()))
    assert toolkit.mdd().get_parameters() == []


@requires_tllib
def test_tllib_reads_back_the_keys_of_its_own_classifiers():
    from tllib.alignment.cdan import ImageClassifier
    from tllib.alignment.mdd import ImageClassifier as MDDClassifier

    toolkit = find("tllib")
    ImageClassifier(Backbone(), K, 8).load_state_dict(toolkit.image_classifier(Backbone(), K, 8).state_dict())
    MDDClassifier(Backbone(), K, 8, 9).load_state_dict(toolkit.mdd_classifier(Backbone(), K, 8, 9).state_dict())


def test_dalib_reads_back_the_keys_of_its_own_classifiers():
    toolkit = find("dalib")
    from dalib.adaptation.cdan import ImageClassifier
    from dalib.adaptation.mdd import ImageClassifier as MDDClassifier

    ImageClassifier(Backbone(), K, 8).load_state_dict(toolkit.image_classifier(Backbone(), K, 8).state_dict())
    MDDClassifier(Backbone(), K, 8, 9).load_state_dict(toolkit.mdd_classifier(Backbone(), K, 8, 9).state_dict())


@pytest.mark.parametrize("method", ["cdan", "mdd"])
def test_one_training_step_moves_every_part(toolkit, method):
    torch.manual_seed(0)
    if method == "cdan":
        classifier = toolkit.image_classifier(Backbone(), K, bottleneck_dim=D)
        loss: AdversarialLoss = toolkit.cdan(K, D, hidden=8)
    else:
        classifier, loss = toolkit.mdd_classifier(Backbone(), K, 8, 8), toolkit.mdd()
    GradientReversal(classifier, loss).load_state_dict({"iterations": 100})
    optimizer = torch.optim.SGD(classifier.get_parameters(0.1) + loss.get_parameters(0.1), 0.1)
    before = {name: value.clone() for name, value in classifier.named_parameters()}
    first, second = classifier.train()(torch.randn(2 * B, 3, 8, 8))
    (logits_s, logits_t), (second_s, second_t) = first.chunk(2), second.chunk(2)
    cross_entropy = nn.functional.cross_entropy(logits_s, torch.arange(B) % K)
    (cross_entropy + loss(logits_s, second_s, logits_t, second_t)).backward()
    optimizer.step()
    weights = {name: value for name, value in classifier.named_parameters() if value.ndim > 1}
    assert [name for name, value in weights.items() if torch.equal(value, before[name])] == []


# Networks


def test_resnets_say_whether_they_pool(toolkit):
    network = toolkit.create_backbone("resnet18")
    features = network(torch.randn(2, 3, 64, 64))
    assert "resnet50" in toolkit.backbone_names()
    assert network.out_features == 512
    assert network.pools == (features.ndim == 2) == (toolkit.name == "dalib")


@requires_tllib
@pytest.mark.parametrize(("name", "shape"), [("lenet", (2, 1, 28, 28)), ("dtn", (2, 3, 32, 32))])
def test_digit_networks_are_flat(name, shape):
    network = find("tllib").create_backbone(name)
    assert network.pools
    assert network(torch.randn(shape)).shape == (2, network.out_features)


@requires_tllib
def test_digit_networks_have_no_pretrained_weights():
    with pytest.raises(UserError, match="no pre-trained weights for lenet"):
        find("tllib").create_backbone("lenet", pretrained=True)


def test_dalib_says_that_tllib_has_the_digit_networks():
    with pytest.raises(UserError, match="lenet is in tllib but not in dalib"):
        find("dalib").create_backbone("lenet")


def test_unknown_network(toolkit):
    with pytest.raises(UserError, match="did you mean 'resnet18'"):
        toolkit.create_backbone("resnet-18")


def test_weights_that_cannot_be_downloaded(toolkit, monkeypatch, tmp_path):
    from torchvision.models import resnet

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setitem(resnet.model_urls, "resnet18", (tmp_path / "missing.pth").as_uri())
    with pytest.raises(UserError, match="weights of resnet18 cannot be downloaded"):
        toolkit.create_backbone("resnet18", pretrained=True)


def test_weights_come_from_the_first_table(toolkit, monkeypatch, tmp_path):
    """``model_urls`` may point at a mirror or at a file."""
    from torchvision.models import resnet, resnet18

    source = resnet18()
    torch.save(source.state_dict(), tmp_path / "resnet18-00000000.pth")
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    monkeypatch.setitem(resnet.model_urls, "resnet18", (tmp_path / "resnet18-00000000.pth").as_uri())
    network = toolkit.create_backbone("resnet18", pretrained=True)
    assert torch.equal(network.layer4[1].conv2.weight, source.layer4[1].conv2.weight)


def test_tokens_cannot_be_pooled():
    with pytest.raises(UserError, match=r"returns \(2, 197, 8\)"):
        AveragePool()(torch.zeros(2, 197, 8))
