"""Batch-norm normalises by the statistics of the target, of the source or a mixture, as the equations say."""

import copy
import math

import pytest
import torch
from timm.layers import BatchNormAct2d, DropPath
from torch import nn
from torchvision.ops import StochasticDepth

from tllib_ancon.models.batch_norm import BatchNormPolicy, estimated_statistics, layers_with_statistics


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
    assert not layers_with_statistics(model)


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
    with estimated_statistics(mixed, [share]):
        mixed(images)
    first = source[0](images)
    torch.testing.assert_close(mixed[1].running_mean, first.mean((0, 2, 3)))
    expected = naive_mixture(source[1], first, share).relu()  # timm's layer ends in a ReLU too
    torch.testing.assert_close(mixed[:3](images), expected, rtol=1e-3, atol=1e-3)
    if share == 1:
        torch.testing.assert_close(mixed(images), source(images))
    assert source.state_dict().keys() == mixed.state_dict().keys()


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

FIRST, SECOND = [9.0, 0], [0, 9.0]
"""Logits that predict the first or the second class."""


@pytest.mark.parametrize(("num_layers", "last"), [(1, 0), (3, 0.1), (21, 1), (31, 1)])
@pytest.mark.parametrize(("alike", "agreement"), [(0, 0), (4, 0.6)])
def test_the_weight_is_the_agreement_beyond_chance_and_rises_to_1_in_a_deep_network(num_layers, last, alike, agreement):
    by_target = [FIRST] * alike + [SECOND] * (5 - alike)
    weights = prepared(num_layers, [[FIRST] * 5, by_target, by_target])
    expected = torch.linspace(0, last, num_layers).clamp_min(agreement)
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize(("num_layers", "late"), [(1, 0), (4, 2), (5, 2), (31, 15)])
def test_the_later_half_keeps_the_sources_statistics_where_it_causes_the_change_of_frequencies(num_layers, late):
    weights = prepared(num_layers, [[FIRST], [SECOND], [FIRST]])
    torch.testing.assert_close(weights, torch.tensor([0.0] * (num_layers - late) + [1.0] * late))


def test_a_weight_that_is_set_is_that_of_all_layers():
    torch.testing.assert_close(prepared(25, [], 0.7), torch.full((25,), 0.7))


def prepared(num_layers, logits, statistics="mixed"):
    """The weights of layers that these predictions prepare, by the scale that absorbs them."""
    model = nn.Sequential(*(nn.BatchNorm1d(1) for _ in range(num_layers))).eval()
    given = iter(logits)

    def predict():
        for layer in model:
            layer(torch.tensor([[-3.0], [3.0]]))
        return torch.tensor(next(given, FIRST))

    numbers = BatchNormPolicy(statistics).prepare(model, predict)
    weights = torch.cat([layer.weight.detach() for layer in model]).log() / math.log(18**0.5)
    assert [*numbers.values()] == pytest.approx([float(weights[0]), float(weights[-(num_layers // 2)])], abs=1e-4)
    return weights
