"""How batch-norm normalises while a network adapts: statistics of the target, of the source, or a mixture."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
from torch import Tensor, nn

from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.models.outputs import evaluating
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import UserError

Statistics = Literal["target", "source", "mixed"]
HALF = 0.5
EVEN = 0.08
"""Total variation between predicted class frequencies and equal ones, up to which classes count as balanced."""


@dataclass(frozen=True)
class BatchNormPolicy:
    """The statistics by which batch-norm normalises.

    Attributes:
        statistics: ``"target"``: of each batch. ``"source"``: the running statistics of the source model. ``"mixed"``:
            of each batch, after :meth:`prepare` mixed the source's into scale and shift
        mixing_weight: weight α of the source's statistics in [0, 1]. Default: chosen by :func:`mixing_weight`
        num_images: images of the sample that this process estimates from; later ones repeat an image. Default: all
    """

    statistics: Statistics = "target"
    mixing_weight: float | None = None
    num_images: int | None = None

    def estimated(self, model: nn.Module, source_weight: float = 0.0) -> AbstractContextManager[None]:
        return estimated_statistics(model, source_weight, self.num_images)

    def set_mode(self, model: nn.Module, dropout: bool = False) -> nn.Module:
        """Put a classifier into the mode of a training step: batch-norm by this policy, the rest in evaluation mode
        (dropout in training mode if ``dropout``). The classifier itself counts as training, so that it returns logits
        and features."""
        model.train(dropout)
        model.training = True
        for module in model.modules():
            if isinstance(module, BATCH_NORMS):
                module.train(self.statistics != "source")
        return model

    def prepare(
        self,
        model: nn.Module,
        predict: Callable[[], Tensor],
        predict_few: Callable[[], Tensor],
        labels: Tensor | None,
    ) -> dict[str, float]:
        """Mix the source's statistics into a model whose batch-norm layers have some.

        Args:
            model: source model, changed in place
            predict: a pass of the model over a sample of the target -> logits (M, K)
            predict_few: the same over the first images of the sample, for the agreement -> logits (F, K)
            labels: (F,) or more, the classes that the source model predicts on the first images of the sample.
                None: of a pass

        Returns: ``batch_norm_share``, the weight α, and the ``agreement`` that it was chosen by. The last pass is that
        of the prepared model
        """
        source = copy.deepcopy(model.state_dict())
        weight, numbers = self.mixing_weight, {}
        if weight is None:
            labels = predict_few().argmax(1) if labels is None else labels
            with self.estimated(model, HALF):
                half = predict_few().argmax(1)
            numbers["agreement"] = float((half == labels[: len(half)].to(half.device)).float().mean())
            model.load_state_dict(source)
            with self.estimated(model):
                weight = mixing_weight(predict(), numbers["agreement"])
            if weight == 0:
                return {"batch_norm_share": weight, **numbers}
            model.load_state_dict(source)
        with self.estimated(model, weight):
            predict()
        return {"batch_norm_share": weight, **numbers}


def mixing_weight(logits: Tensor, agreement: float) -> float:
    r"""Choose the weight α of the source's statistics.

    .. math::
        α = 0 \text{ if } u / 2 \le \min(0.08, 1 - a),
        \text{ else } \max\Big(\frac12, \frac{u}{u + 1 - a}\Big), \quad u = \sum_k \big| \rho_k - \tfrac1K \big|

    The statistics of a batch depend on the domain and on its classes. Balanced classes leave the domain alone, so that
    the target's statistics serve best. The less balanced the classes and the smaller the shift, the larger is α.

    Args:
        logits: (M, K) predictions with the target's statistics; ρ are the frequencies of the predicted classes
        agreement: a, the fraction of images that the source model and the half-mixed model predict alike
    """
    num_images, num_classes = logits.shape
    frequencies = logits.argmax(1).bincount(minlength=num_classes) / num_images
    imbalance, shift = float((frequencies - 1 / num_classes).abs().sum()), 1 - agreement
    return 0.0 if imbalance / 2 <= min(EVEN, shift) else max(HALF, imbalance / (imbalance + shift))


@contextmanager
def estimated_statistics(model: nn.Module, source_weight: float = 0.0, num_images: int | None = None) -> Iterator[None]:
    r"""Estimate batch-norm statistics from the forward passes inside this context.

    .. math::
        \mu_T = \frac1M \sum_t m_t \mu_t, \qquad
        \sigma_T^2 = \frac{1}{M - 1} \sum_t \left( (m_t - 1)\, \sigma_t^2 + m_t (\mu_t - \mu_T)^2 \right)

    with the mean and the unbiased variance of the m_t values that a channel has in batch t of any process, M in all:
    the moments of all values at once. Inside the context each layer normalises by the statistics of its batch, mixed
    with the weight. At the end every layer's running statistics are the estimate. Nothing else changes.

    With a ``source_weight`` α above 0 the network becomes the one that normalises by both domains' statistics,

    .. math::
        \bar\mu = (1 - α) \mu_T + α \mu_S, \qquad \bar\sigma = \sigma_T^{1 - α} \sigma_S^α

    with S the statistics before. Scale and shift absorb the difference, γ ← γ σ_T / σ̄ and β ← β + γ (μ_T - μ̄) / σ̄, so
    that the network learns like any other, and the running statistics are the target's. Images after the first
    ``num_images`` do not count. A layer without scale and
    shift, or with frozen ones, gets the target's statistics alone.

    Source: Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (AdaBN). The mixture is
    Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", NeurIPS 2020,
    Eq. (2), with the geometric mean of deviations in place of the arithmetic one of variances.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, BATCH_NORMS) and layer.track_running_stats]
    if not layers:
        raise UserError("the model has no batch-norm with running statistics; choose another method or `batch_norm`")
    source = {
        layer: (layer.get_buffer("running_mean").clone(), layer.get_buffer("running_var").clone()) for layer in layers
    }
    moments: dict[BATCH_NORMS, Tensor] = {}
    seen: Counter[BATCH_NORMS] = Counter()
    mixing = {
        layer
        for layer in layers
        if source_weight and layer.affine and all(one.requires_grad for one in layer.parameters())
    }

    def mixed(layer: BATCH_NORMS, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        weight = source_weight if layer in mixing else 0.0
        source_mean, source_variance = source[layer]
        target_log, source_log = ((value + layer.eps).log() for value in (variance, source_variance))
        return mean.lerp(source_mean, weight), target_log.lerp(source_log, weight).exp() - layer.eps

    @torch.no_grad()
    def add_moments(layer: BATCH_NORMS, inputs: tuple[Tensor]) -> None:
        first = seen[layer]
        seen[layer] += len(inputs[0])
        values = inputs[0][: None if num_images is None else max(num_images - first, 0)].float()
        if not len(values):
            return
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
        yield
    with torch.no_grad():
        for layer, estimate in moments.items():
            count, mean, squares = reduce(_merged, processes.gather(estimate[None]))
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


def has_statistics(model: nn.Module) -> bool:
    """Whether some layer of batch-norm keeps running statistics."""
    return any(isinstance(layer, BATCH_NORMS) and layer.track_running_stats for layer in model.modules())
