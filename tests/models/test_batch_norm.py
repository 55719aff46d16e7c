import copy

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn

from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.runtime.errors import UserError


@pytest.mark.parametrize("sizes", [(64, 2), (5, 5, 3), (1, 1, 1)])
def test_statistics_are_those_of_all_images_at_once(sizes: tuple[int, ...]) -> None:
    """Of the first layer's inputs; the second one sees what a batch's own statistics normalise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 2, 3))
    model.append(nn.BatchNorm2d(2))
    batches = [scale * (torch.randn(size, 3, 8, 8) + 1) for scale, size in enumerate(sizes, start=1)]
    model.eval()
    model[3].train()
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    with estimated_statistics(model):
        for batch in batches:
            model(batch)
    first = [model[0](batch) for batch in batches]
    normalised = [nn.functional.batch_norm(x, None, None, model[1].weight, model[1].bias, True) for x in first]
    second = [model[4](x.relu()) for x in normalised]
    for layer, inputs in ((model[1], torch.cat(first)), (model[5], torch.cat(second))):
        torch.testing.assert_close(layer.running_mean, inputs.mean((0, 2, 3)))
        torch.testing.assert_close(layer.running_var, inputs.var((0, 2, 3)))
        assert layer.momentum == 0.1
        assert not layer.training
        assert not layer._forward_pre_hooks
    assert model[3].training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_a_model_without_statistics(model: nn.Module) -> None:
    with pytest.raises(UserError, match="no batch-norm"):
        estimated_statistics(model).__enter__()


def network(layer: nn.Module) -> nn.Module:
    """Two layers of batch-norm with statistics, scale and shift of a source."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.ReLU(), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)).eval()
    for one in (model[1], model[4]):
        one.running_mean.normal_()
        one.running_var.uniform_(0.5, 2)
        for parameter in (one.weight, one.bias):
            nn.init.normal_(parameter)
    return model


def naive_mixture(layer: nn.BatchNorm2d, inputs: torch.Tensor, share: float) -> torch.Tensor:
    channels = []
    for channel in range(inputs.shape[1]):
        values, source = inputs[:, channel], (layer.running_mean[channel], layer.running_var[channel])
        mean = share * source[0] + (1 - share) * values.mean()
        deviations = [(variance + layer.eps) ** 0.5 for variance in (source[1], values.var())]
        deviation = deviations[0] ** share * deviations[1] ** (1 - share)
        channels.append((values - mean) / deviation * layer.weight[channel] + layer.bias[channel])
    return torch.stack(channels, dim=1)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("kind", [nn.BatchNorm2d, BatchNormAct2d])
def test_the_network_takes_up_a_share_of_the_sources_statistics(share: float, kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    source, images = network(kind(4)), 2 * torch.randn(40, 3, 8, 8) + 1
    mixed = copy.deepcopy(source)
    with estimated_statistics(mixed, share):
        mixed(images)
    first = source[0](images)
    torch.testing.assert_close(mixed[1].running_mean, first.mean((0, 2, 3)))
    expected = naive_mixture(source[1], first, share).relu()  # timm's layer ends in a ReLU too
    torch.testing.assert_close(mixed[:3](images), expected, rtol=1e-3, atol=1e-3)
    if share == 1:
        torch.testing.assert_close(mixed(images), source(images))
    assert source.state_dict().keys() == mixed.state_dict().keys()


def test_a_layer_without_scale_and_shift_has_the_targets_statistics() -> None:
    layer, images = nn.BatchNorm2d(3, affine=False).eval(), 2 * torch.randn(40, 3, 2, 2) + 1
    with estimated_statistics(layer, 0.5):
        layer(images)
    torch.testing.assert_close(layer.running_mean, images.mean((0, 2, 3)))
