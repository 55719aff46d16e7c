"""The statistics of batch-norm: those of another domain in place of the source's, or beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from tllib_ancon.errors import UserError


@torch.no_grad()
def estimate_statistics(model: nn.Module, batches: Iterable[Tensor]) -> None:
    r"""Replace the running statistics of every batch-norm layer by their mean over these batches; nothing else changes.

    .. math::
        \mu \leftarrow \frac1T \sum_t \mu_t, \qquad \sigma^2 \leftarrow \frac1T \sum_t \sigma_t^2

    with the mean and the unbiased variance of batch t of T at each layer, whose inputs are normalised by the batch's
    own statistics.

    Args:
        model (nn.Module): changed in place; each module's mode stays
        batches (iterable of Tensor): (B, C, H, W) on the model's device, B at least 2

    Raises:
        UserError: the model has no batch-norm, or it keeps no running statistics

    Source: Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (AdaBN).
    """
    layers = _with_running_statistics(model)
    modes = {module: module.training for module in model.modules()}
    momenta = [layer.momentum for layer in layers]
    model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a mean over all batches
        layer.train()
    try:
        for batch in batches:
            model(batch)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, mode in modes.items():
            module.training = mode


def mix_statistics(model: nn.Module, prior: float) -> Callable[[], None]:
    r"""Let batch-norm in training mode normalise by a mixture of the statistics that it has now and the batch's.

    .. math::
        \bar\mu = \frac{N}{N + n} \mu_s + \frac{n}{N + n} \mu_B, \qquad
        \bar\sigma^2 = \frac{N}{N + n} \sigma_s^2 + \frac{n}{N + n} \sigma_B^2

    with the source's running statistics s at the time of this call and those of a batch B of n images. The running
    statistics follow the mixture, so that evaluation is by the same. Gradients pass through the batch's part.

    Args:
        model (nn.Module): changed until what is returned is called; its state dict has the same entries
        prior (float): N, images that the source's statistics count for; 0 gives the batch's alone

    Returns: a function without arguments that gives each layer its own forward pass back

    Raises:
        UserError: the model has no batch-norm, or it keeps no running statistics

    Source: Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation",
    NeurIPS 2020, Eq. (2).
    """
    layers = _with_running_statistics(model)
    for layer in layers:
        assert layer.running_mean is not None
        assert layer.running_var is not None
        layer.register_buffer("source_mean", layer.running_mean.clone(), persistent=False)
        layer.register_buffer("source_var", layer.running_var.clone(), persistent=False)
        layer.forward = MethodType(partial(_mixed_forward, prior=prior), layer)  # type: ignore[method-assign]

    def restore() -> None:
        for layer in layers:
            del layer.forward, layer.source_mean, layer.source_var

    return restore


def _mixed_forward(layer: BatchNorm, inputs: Tensor, prior: float) -> Tensor:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    if not layer.training:
        return functional.batch_norm(
            inputs, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps
        )
    over = [0, *range(2, inputs.ndim)]
    weight = prior / (prior + len(inputs))
    variance, mean = torch.var_mean(inputs.float(), over, correction=0)
    mean = torch.lerp(mean, layer.get_buffer("source_mean"), weight)
    variance = torch.lerp(variance, layer.get_buffer("source_var"), weight)
    with torch.no_grad():
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked += 1
        momentum = 1 / int(layer.num_batches_tracked or 1) if layer.momentum is None else layer.momentum
        layer.running_mean.lerp_(mean, momentum)
        layer.running_var.lerp_(variance, momentum)
    scale = (variance + layer.eps).rsqrt() * (1 if layer.weight is None else layer.weight)
    shift = (0 if layer.bias is None else layer.bias) - mean * scale
    shape = [1, -1, *[1] * (inputs.ndim - 2)]
    return (inputs * scale.view(shape) + shift.view(shape)).to(inputs.dtype)


def has_statistics(model: nn.Module) -> bool:
    """Whether some layer of batch-norm keeps running statistics."""
    return any(isinstance(module, BatchNorm) and module.track_running_stats for module in model.modules())


def freeze_statistics(model: nn.Module) -> None:
    """Let batch-norm normalise by its running statistics, which then stay, while everything else trains."""
    for layer in model.modules():
        if isinstance(layer, BatchNorm):
            layer.eval()


def _with_running_statistics(model: nn.Module) -> list[BatchNorm]:
    layers = [module for module in model.modules() if isinstance(module, BatchNorm)]
    layers = [layer for layer in layers if layer.track_running_stats]
    if not layers:
        raise UserError("the model has no batch-norm with running statistics")
    return layers
