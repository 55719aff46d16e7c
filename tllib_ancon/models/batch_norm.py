"""The statistics of batch-norm: those of another domain in place of the source's."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

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
    layers = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    layers = [layer for layer in layers if layer.track_running_stats]
    if not layers:
        raise UserError("the model has no batch-norm with running statistics, and there is nothing to estimate")
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
