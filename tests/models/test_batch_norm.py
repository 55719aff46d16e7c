import pytest
import torch
from torch import nn

from tllib_ancon.errors import UserError
from tllib_ancon.models.batch_norm import estimate_statistics, mix_statistics


@pytest.mark.parametrize("sizes", [(64, 2), (64, 1), (5, 5, 3), (1, 1, 1)])
def test_statistics_are_those_of_all_images_at_once(sizes: tuple[int, ...]) -> None:
    """Of the first layer's inputs; the second one sees what a batch's own statistics normalise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 2, 3))
    model.append(nn.BatchNorm2d(2))
    batches = [scale * (torch.randn(size, 3, 8, 8) + 1) for scale, size in enumerate(sizes, start=1)]
    model.eval()
    model[3].train()
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    estimate_statistics(model, batches)
    if sizes[-1] == 1 < sizes[0]:
        batches = [torch.cat(batches)]
    first = [model[0](batch) for batch in batches]
    normalised = [nn.functional.batch_norm(x, None, None, model[1].weight, model[1].bias, True) for x in first]
    second = [model[4](x.relu()) for x in normalised]
    for layer, inputs in ((model[1], torch.cat(first)), (model[5], torch.cat(second))):
        torch.testing.assert_close(layer.running_mean, inputs.mean((0, 2, 3)))
        torch.testing.assert_close(layer.running_var, inputs.var((0, 2, 3)))
        assert layer.momentum == 0.1
        assert not layer.training
        assert not layer._forward_hooks
    assert model[3].training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_a_model_without_statistics(model: nn.Module) -> None:
    for change in (lambda: estimate_statistics(model, [torch.zeros(3, 2)]), lambda: mix_statistics(model, 1)):
        with pytest.raises(UserError, match="no batch-norm"):
            change()


def layer_with_source_statistics(inputs: torch.Tensor) -> nn.Module:
    torch.manual_seed(1)
    layer = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[inputs.ndim](3)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    return layer


def naive_mixture(layer: nn.Module, inputs: torch.Tensor, prior: float) -> torch.Tensor:
    share = prior / (prior + len(inputs))
    channels = []
    for channel in range(inputs.shape[1]):
        values = inputs[:, channel]
        mean = share * layer.running_mean[channel] + (1 - share) * values.mean()
        variance = share * layer.running_var[channel] + (1 - share) * ((values - values.mean()) ** 2).mean()
        channels.append((values - mean) / (variance + layer.eps) ** 0.5 * layer.weight[channel] + layer.bias[channel])
    return torch.stack(channels, dim=1)


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (5, 3, 4, 2)])
@pytest.mark.parametrize("prior", [0.0, 1.0, 16.0, 1e9])
def test_mixed_statistics_and_their_gradients(shape: tuple[int, ...], prior: float) -> None:
    torch.manual_seed(0)
    inputs = (2 * torch.randn(shape) + 1).requires_grad_()
    layer = layer_with_source_statistics(inputs)
    expected = naive_mixture(layer, inputs, prior)
    (wanted,) = torch.autograd.grad((expected**3).sum(), inputs)
    restore = mix_statistics(layer, prior)
    outputs = layer(inputs)
    (gradient,) = torch.autograd.grad((outputs**3).sum(), inputs)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-4)
    restore()
    assert "forward" not in vars(layer)
    assert set(dict(layer.named_buffers())) == {"running_mean", "running_var", "num_batches_tracked"}


def test_evaluation_is_by_the_mixture_in_the_end() -> None:
    inputs = 2 * torch.randn(8, 3) + 1
    layer = layer_with_source_statistics(inputs)
    before = layer.state_dict().keys()
    mix_statistics(layer, 8)
    for _ in range(200):
        outputs = layer(inputs)
    assert layer.state_dict().keys() == before
    layer.eval()
    torch.testing.assert_close(layer(inputs), outputs)
