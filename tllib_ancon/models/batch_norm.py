"""The statistics of batch-norm: those of another domain in place of the source's, or beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes


@torch.no_grad()
def estimate_statistics(model: nn.Module, batches: Iterable[Tensor]) -> None:
    r"""Replace the running statistics of every batch-norm layer by those of all these images; nothing else changes.

    .. math::
        \mu \leftarrow \frac1M \sum_t m_t \mu_t, \qquad
        \sigma^2 \leftarrow \frac{1}{M - 1} \sum_t \left( (m_t - 1)\, \sigma_t^2 + m_t (\mu_t - \mu)^2 \right)

    with the mean and the unbiased variance of the m_t values that a channel has in batch t of any process, M in all:
    the moments of all values at once. What a layer gets was normalised, in the layers before it, by the own statistics
    of its batch. An image that is left alone joins the batch before it.

    Source: Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (AdaBN).
    """
    layers = _layers(model)
    modes = {module: module.training for module in model.modules()}
    momenta = [layer.momentum for layer in layers]
    moments: dict[BatchNorm, Tensor] = {}

    def add_moments(layer: BatchNorm, inputs: tuple[Tensor], _: Tensor) -> None:
        mean, variance = layer.get_buffer("running_mean").float(), layer.get_buffer("running_var").float()
        count = torch.full_like(mean, inputs[0].numel() // len(mean))
        batch = torch.stack((count, mean, variance * (count - 1)))
        moments[layer] = _merged(moments[layer], batch) if layer in moments else batch

    hooks = [layer.register_forward_hook(add_moments) for layer in layers]
    model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = 1.0  # so that the running statistics are the batch's
        layer.train()
    try:
        for batch in _none_alone(batches):
            model.forward(batch)  # a compiled call would not run the hooks
    finally:
        for layer, momentum, hook in zip(layers, momenta, hooks, strict=True):
            layer.momentum = momentum
            hook.remove()
        for module, mode in modes.items():
            module.training = mode
    for layer, own in moments.items():
        count, mean, squares = reduce(_merged, processes.gather(own[None]))
        layer.get_buffer("running_mean").copy_(mean)
        layer.get_buffer("running_var").copy_(squares / (count - 1))


def _merged(one: Tensor, other: Tensor) -> Tensor:
    """Number, mean and squared deviations, (3, C), of two sets of values -> those of both together."""
    (m, mean, squares), (n, other_mean, other_squares) = one, other
    away = other_mean - mean
    deviations = squares + other_squares + away.square() * (m * n / (m + n))
    return torch.stack((m + n, mean + away * (n / (m + n)), deviations))


def _none_alone(batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """The same images, but that a last batch of one, or none, is part of the one before it."""
    batches = iter(batches)
    held = next(batches)
    for batch in batches:
        if len(batch) < min(2, len(held)):
            held = torch.cat((held, batch))
        else:
            yield held
            held = batch
    yield held


def mix_statistics(model: nn.Module, prior: float) -> Callable[[], None]:
    r"""Let batch-norm in training mode normalise by a mixture of the statistics that it has now and the batch's, until
    what is returned is called.

    .. math::
        \bar\mu = \frac{N}{N + n} \mu_s + \frac{n}{N + n} \mu_B, \qquad
        \bar\sigma^2 = \frac{N}{N + n} \sigma_s^2 + \frac{n}{N + n} \sigma_B^2

    with N the ``prior``, the source's running statistics s at the time of this call and those of a batch B of n images.
    The running statistics follow the mixture, so that evaluation is by the same. Gradients pass through the batch's
    part, and the state dict has the same entries.

    Source: Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", NeurIPS
    2020, Eq. (2).
    """
    layers = _layers(model)
    for layer in layers:
        for name in ("mean", "var"):
            layer.register_buffer(f"source_{name}", layer.get_buffer(f"running_{name}").clone(), persistent=False)
        layer.forward = MethodType(partial(_mixed_forward, prior=prior), layer)  # type: ignore[method-assign]

    def restore() -> None:
        for layer in layers:
            del layer.forward, layer.source_mean, layer.source_var

    return restore


def _mixed_forward(layer: BatchNorm, inputs: Tensor, prior: float) -> Tensor:
    running_mean, running_var = layer.get_buffer("running_mean"), layer.get_buffer("running_var")
    if not layer.training:
        return functional.batch_norm(inputs, running_mean, running_var, layer.weight, layer.bias, eps=layer.eps)
    weight = prior / (prior + len(inputs))
    variance, mean = torch.var_mean(inputs.float(), [0, *range(2, inputs.ndim)], correction=0)
    mean = torch.lerp(mean, layer.get_buffer("source_mean"), weight)
    variance = torch.lerp(variance, layer.get_buffer("source_var"), weight)
    with torch.no_grad():
        batches = layer.get_buffer("num_batches_tracked").add_(1)
        momentum = 1 / int(batches) if layer.momentum is None else layer.momentum
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance, momentum)
    scale = (variance + layer.eps).rsqrt() * (1 if layer.weight is None else layer.weight)
    shift = (0 if layer.bias is None else layer.bias) - mean * scale
    shape = [1, -1, *[1] * (inputs.ndim - 2)]
    return (inputs * scale.view(shape) + shift.view(shape)).to(inputs.dtype)


def has_statistics(model: nn.Module) -> bool:
    """Whether some layer of batch-norm keeps running statistics."""
    return any(isinstance(layer, BatchNorm) and layer.track_running_stats for layer in model.modules())


def freeze_statistics(model: nn.Module) -> None:
    """Let batch-norm normalise by its running statistics, which then stay, while everything else trains."""
    for layer in model.modules():
        if isinstance(layer, BatchNorm):
            layer.eval()


def _layers(model: nn.Module) -> list[BatchNorm]:
    if not has_statistics(model):
        raise UserError("the model has no batch-norm with running statistics")
    return [layer for layer in model.modules() if isinstance(layer, BatchNorm) and layer.track_running_stats]
