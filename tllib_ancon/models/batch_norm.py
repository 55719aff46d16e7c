"""The statistics of batch-norm: those of another domain in place of the source's, or beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import reduce

import torch
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import BATCH_NORMS, evaluating
from tllib_ancon.self_training import processes


@torch.no_grad()
def estimate_statistics(model: nn.Module, batches: Iterable[Tensor], source_share: float = 0.0) -> None:
    r"""Replace the running statistics of every batch-norm layer by those of all these images.

    .. math::
        \mu_T = \frac1M \sum_t m_t \mu_t, \qquad
        \sigma_T^2 = \frac{1}{M - 1} \sum_t \left( (m_t - 1)\, \sigma_t^2 + m_t (\mu_t - \mu_T)^2 \right)

    with the mean and the unbiased variance of the m_t values that a channel has in batch t of any process, M in all:
    the moments of all values at once. What a layer gets was normalised, in the layers before it, by the own statistics
    of its batch. An image that is left alone joins the batch before it. Nothing else changes.

    With a ``source_share`` α above 0 the network becomes the one that normalises by both domains' statistics,

    .. math::
        \bar\mu = (1 - α) \mu_T + α \mu_S, \qquad \bar\sigma = \sigma_T^{1 - α} \sigma_S^α

    with S those that it has now, and still learns as any other: scale and shift, γ ← γ σ_T / σ̄ and
    β ← β + γ (μ_T - μ̄) / σ̄, take up the difference, and the running statistics are the target's. A layer without scale
    and shift, or with frozen ones, has the target's alone.

    Source: Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (AdaBN). The mixture is
    Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", NeurIPS 2020,
    Eq. (2), with the geometric mean of deviations in place of the arithmetic one of variances.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, BATCH_NORMS) and layer.track_running_stats]
    if not layers:
        raise UserError("the model has no batch-norm with running statistics")
    source = {
        layer: (layer.get_buffer("running_mean").clone(), layer.get_buffer("running_var").clone()) for layer in layers
    }
    moments: dict[BATCH_NORMS, Tensor] = {}
    learning = (layer for layer in layers if layer.affine and all(one.requires_grad for one in layer.parameters()))
    mixing = {*learning} if source_share else set()

    def mixed(layer: BATCH_NORMS, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        share = source_share if layer in mixing else 0.0
        source_mean, source_variance = source[layer]
        own, others = ((value + layer.eps).log() for value in (variance, source_variance))
        return mean.lerp(source_mean, share), own.lerp(others, share).exp() - layer.eps

    def add_moments(layer: BATCH_NORMS, inputs: tuple[Tensor]) -> None:
        values = inputs[0].float()
        others = [0, *range(2, values.ndim)]
        centre = values.mean(others, keepdim=True)
        mean, variance = centre.flatten(), (values - centre).square_().mean(others)  # ten times faster than var_mean
        count = torch.full_like(mean, values.numel() // len(mean))
        batch = torch.stack((count, mean, variance * count))
        moments[layer] = _merged(moments[layer], batch) if layer in moments else batch
        _set_statistics(layer, *mixed(layer, mean, variance))
        layer.get_buffer("num_batches_tracked").add_(1)

    with ExitStack() as hooks, evaluating(model):
        for layer in layers:
            layer.get_buffer("num_batches_tracked").zero_()
            hooks.enter_context(layer.register_forward_pre_hook(add_moments))
        for batch in _none_alone(batches):
            model.forward(batch)  # a compiled call would not run the hooks
    for layer, own in moments.items():
        count, mean, squares = reduce(_merged, processes.gather(own[None]))
        variance = squares / (count - 1)
        _set_statistics(layer, mean, variance)
        if layer in mixing:
            mixed_mean, mixed_variance = mixed(layer, mean, variance)
            scale = layer.weight * (mixed_variance + layer.eps).rsqrt()
            layer.weight.copy_(scale * (variance + layer.eps).sqrt())
            layer.bias.add_(scale * (mean - mixed_mean))


def _set_statistics(layer: BATCH_NORMS, mean: Tensor, variance: Tensor) -> None:
    layer.get_buffer("running_mean").copy_(mean)
    layer.get_buffer("running_var").copy_(variance)


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


def has_statistics(model: nn.Module) -> bool:
    """Whether some layer of batch-norm keeps running statistics."""
    return any(isinstance(layer, BATCH_NORMS) and layer.track_running_stats for layer in model.modules())
