"""Batch-norm normalises by the statistics of the target, of the source or a mixture, as the equations say."""

import copy
import math
from functools import partial

import pytest
import torch
from timm.layers import BatchNormAct2d, DropPath
from torch import nn
from torchvision.ops import StochasticDepth

from tllib_ancon.models.batch_norm import BatchNormPolicy, estimated_statistics, has_statistics


@pytest.mark.parametrize("sizes", [(64, 2), (5, 5, 3), (1, 1, 1)])
def test_statistics_are_those_of_all_images_at_once(sizes):
    """Of the first layer's inputs; the second one sees what a batch's own statistics normalise."""
    first_layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5)
    model = nn.Sequential(*first_layers, nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2))
    batches = []
    for scale, size in enumerate(sizes, start=1):
        noise = torch.randn(size, 3, 8, 8)
        batches.append(scale * (noise + 1))
    with estimated_statistics(model.eval()):
        for batch in batches:
            model(batch)
    first = [model[0](batch) for batch in batches]
    affine = model[1].weight, model[1].bias
    normalised = [nn.functional.batch_norm(x, None, None, *affine, training=True) for x in first]
    second = [model[4](x.relu()) for x in normalised]
    for layer, inputs in ((model[1], torch.cat(first)), (model[5], torch.cat(second))):
        torch.testing.assert_close(layer.running_mean, inputs.mean((0, 2, 3)))
        torch.testing.assert_close(layer.running_var, inputs.var((0, 2, 3)))


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_a_model_without_statistics(model):
    assert not has_statistics(model)


def network(layer):
    """Two layers of batch-norm with statistics, scale and shift of a source."""
    second_layers = nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.ReLU(), *second_layers).eval()
    for one in (model[1], model[4]):
        one.running_mean.normal_()
        one.running_var.uniform_(0.5, 2)
        for parameter in (one.weight, one.bias):
            nn.init.normal_(parameter)
    return model


def naive_mixture(layer, inputs, share):
    channels = []
    for channel in range(inputs.shape[1]):
        values = inputs[:, channel]
        source = (layer.running_mean[channel], layer.running_var[channel])
        mean = share * source[0] + (1 - share) * values.mean()
        deviations = [(variance + layer.eps) ** 0.5 for variance in (source[1], values.var())]
        deviation = deviations[0] ** share * deviations[1] ** (1 - share)
        channels.append((values - mean) / deviation * layer.weight[channel] + layer.bias[channel])
    return torch.stack(channels, dim=1)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("kind", [nn.BatchNorm2d, BatchNormAct2d])
def test_the_network_takes_up_a_share_of_the_sources_statistics(share, kind):
    source = network(kind(4))
    images = 2 * torch.randn(40, 3, 8, 8) + 1
    mixed = copy.deepcopy(source)
    with estimated_statistics(mixed, [share, share]):
        mixed(images)
    first = source[0](images)
    torch.testing.assert_close(mixed[1].running_mean, first.mean((0, 2, 3)))
    expected = naive_mixture(source[1], first, share).relu()  # timm's layer ends in a ReLU too
    torch.testing.assert_close(mixed[:3](images), expected, rtol=1e-3, atol=1e-3)
    if share == 1:
        torch.testing.assert_close(mixed(images), source(images))
    assert source.state_dict().keys() == mixed.state_dict().keys()


@pytest.mark.parametrize(("num_layers", "last"), [(1, 0), (3, 0.1), (21, 1), (31, 1)])
def test_the_weight_rises_with_the_layers_to_1_in_a_deep_network(num_layers, last):
    """Predictions by both statistics differ everywhere, so that their agreement is 0."""
    weights = prepared(num_layers, [[9.0, 0], [0, 9.0], [0, 9.0], [0, 9.0]])
    torch.testing.assert_close(weights, torch.linspace(0, last, num_layers))


@pytest.mark.parametrize(("num_layers", "late"), [(1, 0), (4, 2), (5, 2), (31, 15)])
def test_the_later_half_keeps_the_sources_statistics_where_it_causes_the_change_of_frequencies(num_layers, late):
    weights = prepared(num_layers, [[9.0, 0], [0, 9.0], [9.0, 0], [0, 9.0]])
    assert weights.tolist() == pytest.approx([0.0] * (num_layers - late) + [1.0] * late, abs=1e-4)


def prepared(num_layers, logits):
    """The weights of layers that these predictions prepare, by the scale that absorbs them."""
    model = nn.Sequential(*(nn.BatchNorm1d(1) for _ in range(num_layers))).eval()
    given = iter(logits)

    def predict():
        for layer in model:
            layer(3 * torch.tensor([[-1.0], [1.0]]))
        return torch.tensor(next(given)).expand(5, 2)

    BatchNormPolicy("mixed").prepare(model, predict)
    deviation = 3 * 2**0.5
    return torch.cat([layer.weight.detach() for layer in model]).log() / math.log(deviation)


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3).requires_grad_(False)])
def test_a_layer_whose_scale_and_shift_cannot_absorb_the_source_has_the_targets_statistics(layer):
    before = {name: parameter.clone() for name, parameter in layer.named_parameters()}
    images = 2 * torch.randn(40, 3, 2, 2) + 1
    with estimated_statistics(layer.eval(), [0.5]):
        layer(images)
    torch.testing.assert_close(layer.running_mean, images.mean((0, 2, 3)))
    assert all(torch.equal(before[name], parameter) for name, parameter in layer.named_parameters())


@pytest.mark.parametrize("size", [1, 3, 5])
def test_images_after_the_counted_ones_change_nothing(size):
    layer = nn.BatchNorm1d(2).eval()
    values = torch.randn(11, 2)
    with estimated_statistics(layer, num_images=7):
        for batch in values.split(size):
            layer(batch)
    torch.testing.assert_close(layer.running_mean, values[:7].mean(0))
    torch.testing.assert_close(layer.running_var, values[:7].var(0))
    assert int(layer.num_batches_tracked) == -(-7 // size)


@pytest.mark.parametrize("statistics", ["target", "source", "mixed"])
@pytest.mark.parametrize("dropout", [False, True])
def test_in_a_step_batch_norm_follows_the_policy_and_dropout_its_flag(statistics, dropout):
    dropouts = nn.Dropout(), nn.Dropout2d(), DropPath(0.5), StochasticDepth(0.5, "row")
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), *dropouts)
    BatchNormPolicy(statistics).set_mode(model, dropout)
    assert [layer.training for layer in model] == [dropout, statistics != "source", *[dropout] * 4]


# The weight of the source's statistics


def classifier(favour):
    """A network of two classes, of which the first is favoured, and images of a target."""
    torch.manual_seed(0)
    body = network(nn.BatchNorm2d(4))
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
    images = 2 * torch.randn(30, 3, 8, 8) + torch.randn(30, 3, 1, 1)
    with torch.no_grad(), estimated_statistics(copy.deepcopy(model)):
        difference = model(images).diff(dim=1).median()
    with torch.no_grad():
        model[-1].bias[0] += difference + favour
    return model.eval(), images


def detached(model, images):
    return model(images).detach()


@pytest.mark.parametrize("favour", [-0.3, 0.0, 0.5])
@pytest.mark.parametrize("policy", ["mixed", 0.0, 0.7])
def test_the_weight_is_the_agreement_of_source_and_target_statistics_or_the_one_that_is_set(favour, policy):
    source, images = classifier(favour)
    weight = late_weight = policy
    if policy == "mixed":
        by_weights = [mixed_by(0.0, late, source, images)(images).detach() for late in (0.0, 1.0)]
        logits = (source(images).detach(), *by_weights)
        alike = float((logits[0].argmax(1) == logits[1].argmax(1)).double().mean())
        weight = late_weight = pytest.approx(2 * alike - 1)  # beyond the half of two classes
        assert 0.5 < alike < 1
        frequencies = [float(one.softmax(1)[:, 0].mean()) for one in logits]
        if abs(frequencies[2] - frequencies[0]) < abs(frequencies[1] - frequencies[0]) / 2:
            late_weight = 1.0
    model = copy.deepcopy(source)
    numbers = BatchNormPolicy(policy).prepare(model, partial(detached, model, images))
    assert numbers == {"batch_norm_share": weight, "batch_norm_late_share": late_weight}
    for name, tensor in mixed_by(numbers["batch_norm_share"], late_weight, source, images).state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)


def mixed_by(weight, late_weight, source, images):
    """A copy of the source model that mixes the statistics of the images by these weights."""
    model = copy.deepcopy(source)
    with estimated_statistics(model, [weight, late_weight]):
        model(images)
    return model
