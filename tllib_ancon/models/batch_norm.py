"""How batch-norm normalises while a network adapts: statistics of the target, of the source, or a mixture."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import chain, repeat
from typing import Literal

import torch
from torch import Tensor, nn

from tllib_ancon.measures.agreement import agreement_beyond_chance
from tllib_ancon.models.calling import evaluating
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import BadImages, BadModel, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import counted

Statistics = Literal["target", "source", "mixed"] | float
HALF = 0.5
DEEP = 20
"""Position of the layer, counted from 0, whose weight of the source's statistics is at least 1."""
LAGGING = 0.1
"""Weight of the source's statistics in a moving average from which it lags."""


@dataclass(frozen=True)
class BatchNormPolicy:
    """The statistics by which batch-norm normalises.

    Attributes:
        statistics: ``"target"``: of each batch. ``"source"``: the running statistics of the source model. ``"mixed"``:
            of each batch, after :meth:`prepare` mixed the source's into scale and shift. Their weight is the
            :func:`agreement`, and rises with depth. Where classes seem to be missing, the later half of the layers
            keeps the source's. A number in [0, 1]: with this weight α
        num_images: images of the sample that this process estimates from; later ones repeat an image. Default: all
    """

    statistics: Statistics = "target"
    num_images: int | None = None

    def note_on_lag(self, model: nn.Module, steps: int) -> Note | None:
        r"""Say if the running statistics of a model lag behind its training.

        A layer with momentum m keeps the source's statistics with the weight :math:`(1 - m)^{steps}`, one with the mean
        of all batches (momentum None) nearly as a whole. Mixed statistics start at the target's.
        """
        if self.statistics != "target":
            return None
        weights = [(1 - (layer.momentum or 0)) ** steps for layer in layers_with_statistics(model)]
        source_weight = max(weights, default=0.0)
        if source_weight < LAGGING:
            return None
        return Note(
            "statistics-lag",
            f"after {counted(steps, 'step')} the running batch-norm statistics still hold those of the source model "
            f"with weight {source_weight:.2f}, so that predictions lag behind the training",
            setting="batch_norm",
            action=f"pass {named('batch_norm', 'mixed')}, whose statistics start at the target's",
            level="warning",
        )

    def set_mode(self, model: nn.Module, dropout: bool = False) -> None:
        """Put a classifier into the mode of a training step: batch-norm by this policy, the rest in evaluation mode
        (dropout in training mode if ``dropout``). The classifier itself counts as training, so that it returns logits
        and features."""
        model.train(dropout)
        model.training = True
        for module in model.modules():
            if isinstance(module, BATCH_NORMS):
                module.train(self.statistics != "source")

    def prepare(self, model: nn.Module, predict: Callable[[], Tensor]) -> dict[str, float]:
        """Estimate the target's statistics, and mix the source's into scale and shift with their weight α.

        Args:
            model: source model, changed in place
            predict: a pass of the model over a sample of the target -> logits (M, K)

        Returns: ``batch_norm_share``, the weight α of the first layer, 0 with statistics of the target.
        ``batch_norm_late_share``, that of the first layer of the later half. Layers are in the order of the model's
        modules. The last pass normalises by the prepared statistics of each batch
        """
        weights = [self.statistics if isinstance(self.statistics, float) else 0.0]
        if self.statistics == "mixed":
            weights = self._weights_by_predictions(model, predict)
        with estimated_statistics(model, weights, self.num_images):
            predict()
        return {"batch_norm_share": weights[0], "batch_norm_late_share": weights[-(len(weights) // 2)]}

    def _weights_by_predictions(self, model: nn.Module, predict: Callable[[], Tensor]) -> list[float]:
        """The weight of the source's statistics in each layer.

        A shift of the images changes the inputs of all layers, and missing or rare classes those of the later ones,
        whose channels tell classes apart. So the weight is the agreement, and in layer i of n at least
        i / max(n - 1, 20). From the source's statistics to the target's the mean prediction changes, that is the
        frequencies of the classes. If the later half causes most of this change, it keeps the source's statistics.
        """
        num_layers = len(layers_with_statistics(model))
        is_late = [float(position >= HALF * num_layers) for position in range(num_layers)]
        logits = [predict()]
        source_state = copy.deepcopy(model.state_dict())
        for weights in ([0.0], is_late):
            with estimated_statistics(model, weights, self.num_images):
                logits.append(predict())
            model.load_state_dict(source_state)
        source, target, source_late = (one.softmax(1).mean(0) for one in logits)
        least = [position / max(num_layers - 1, DEEP) for position in range(num_layers)]
        if (source_late - source).abs().sum() < HALF * (target - source).abs().sum():
            least = is_late
        weight = agreement(logits[1], logits[0])
        return [max(weight, bound) for bound in least]


def agreement(logits: Tensor, source_logits: Tensor) -> float:
    """The weight α of the source's statistics: how far the predictions by both statistics agree, beyond chance.

    The smaller a shift is, the more they agree, and the more of the source's statistics remains. Of K classes a share
    1 / K agrees by chance: see :func:`~tllib_ancon.measures.agreement.agreement_beyond_chance`.

    Args:
        logits, source_logits: (N, K), by the target's and by the source's statistics
    """
    return agreement_beyond_chance(logits.argmax(1), source_logits.argmax(1), 1 / logits.shape[1])


@contextmanager
def estimated_statistics(
    model: nn.Module, source_weights: Sequence[float] = (0.0,), num_images: int | None = None
) -> Iterator[None]:
    r"""Estimate batch-norm statistics from the forward passes inside this context.

    .. math::
        \mu_T = \frac1M \sum_t m_t \mu_t, \qquad
        \sigma_T^2 = \frac{1}{M - 1} \sum_t \left( (m_t - 1)\, \sigma_t^2 + m_t (\mu_t - \mu_T)^2 \right)

    with the mean and the unbiased variance of the m_t values that a channel has in batch t of any process, M in all:
    the moments of all values at once. Inside the context each layer normalises by the statistics of its batch, mixed
    with the weight. At the end every layer's running statistics are the estimate. Nothing else changes.

    With ``source_weights`` α above 0, one for each layer, and the last one for all that follow, the network becomes the
    one that normalises by both domains' statistics,

    .. math::
        \bar\mu = (1 - α) \mu_T + α \mu_S, \qquad \bar\sigma = \sigma_T^{1 - α} \sigma_S^α

    with S the statistics before. Scale and shift absorb the difference, γ ← γ σ_T / σ̄ and β ← β + γ (μ_T - μ̄) / σ̄, so
    that the network learns like any other, and the running statistics are the target's. Images after the first
    ``num_images`` do not count. A layer without scale and shift, or with frozen ones, gets the target's statistics
    alone.

    Source: Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (AdaBN). The mixture is
    Schneider et al., "Improving robustness against common corruptions by covariate shift adaptation", NeurIPS 2020,
    Eq. (2), with the geometric mean of deviations in place of the arithmetic one of variances.
    """
    layers = layers_with_statistics(model)
    if not layers:
        raise BadModel(
            "the model has no batch-norm with running statistics", f"choose another method or {named('batch_norm')}"
        )
    weights = chain(source_weights, repeat(source_weights[-1]))
    estimates = [_LayerEstimate(layer, weight, num_images) for layer, weight in zip(layers, weights, strict=False)]
    with ExitStack() as hooks, evaluating(model):
        for estimate in estimates:
            hooks.enter_context(estimate.layer.register_forward_pre_hook(estimate.add_batch))
        yield
    for estimate in estimates:
        estimate.apply_to_layer()


class LayerStatistics(nn.Module):
    """One batch-norm layer beside the statistics of the source model, mixed into those by which it normalises."""

    source_mean: Tensor
    source_variance: Tensor

    def __init__(self, layer: BATCH_NORMS):
        super().__init__()
        self.layer_alone = (layer,)  # a tuple, so that its tensors are in the state of the model alone
        self.register_buffer("source_mean", layer.get_buffer("running_mean").clone())
        self.register_buffer("source_variance", layer.get_buffer("running_var").clone())

    @property
    def layer(self) -> BATCH_NORMS:
        return self.layer_alone[0]

    def mixed(self, mean: Tensor, variance: Tensor, source_weight: float) -> tuple[Tensor, Tensor]:
        """Mean and variance mixed with the source's: the arithmetic mean of both means, and the geometric one of both
        variances, each with eps added."""
        mixed_mean = mean.float().lerp(self.source_mean.float(), source_weight)
        log_variance = (variance.float() + self.layer.eps).log()
        source_log_variance = (self.source_variance.float() + self.layer.eps).log()
        return mixed_mean, log_variance.lerp(source_log_variance, source_weight).exp() - self.layer.eps

    @torch.no_grad()
    def set(self, mean: Tensor, variance: Tensor) -> None:
        """Let the layer normalise by these statistics in evaluation mode."""
        self.layer.get_buffer("running_mean").copy_(mean)
        self.layer.get_buffer("running_var").copy_(variance)


class _LayerEstimate(LayerStatistics):
    """Statistics of the inputs of a layer, estimated batch by batch."""

    def __init__(self, layer: BATCH_NORMS, source_weight: float, num_images: int | None):
        super().__init__(layer)
        learns = layer.affine and all(parameter.requires_grad for parameter in layer.parameters())
        self.source_weight = source_weight if learns else 0.0
        self.num_images = num_images
        self.images_seen = 0
        self.moments: Tensor | None = None  # number, mean and squared deviations of each channel, (3, C)
        layer.get_buffer("num_batches_tracked").zero_()

    @torch.no_grad()
    def add_batch(self, layer: nn.Module, inputs: tuple[Tensor]) -> None:
        """Before a forward pass: count its values, and let the layer normalise by the batch, mixed with the source."""
        values = inputs[0].float()
        if self.num_images is not None:
            values = values[: max(self.num_images - self.images_seen, 0)]
        self.images_seen += len(inputs[0])
        if not len(values):
            return
        mean, variance = channel_moments(values)
        count = torch.full_like(mean, values.numel() // len(mean))
        batch_moments = torch.stack((count, mean, variance * count))
        if self.moments is None:
            self.moments = batch_moments
        else:
            self.moments = _merged(self.moments, batch_moments)
        self.set(*self.mixed(mean, variance, self.source_weight))
        self.layer.get_buffer("num_batches_tracked").add_(1)

    @torch.no_grad()
    def apply_to_layer(self) -> None:
        """Give the layer the statistics of all values of all processes, and mix the source's into scale and shift."""
        if self.moments is None:
            return
        count, mean, squared_deviations = reduce(_merged, processes.gather(self.moments[None]))
        if bool((count == 1).all()):
            raise one_value_error()
        variance = squared_deviations / (count - 1)
        self.set(mean, variance)
        if self.source_weight == 0:
            return
        mixed_mean, mixed_variance = self.mixed(mean, variance, self.source_weight)
        scale = self.layer.weight * (mixed_variance + self.layer.eps).rsqrt()
        self.layer.weight.copy_(scale * (variance + self.layer.eps).sqrt())
        self.layer.bias.add_(scale * (mean - mixed_mean))


def channel_moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel of values (B, C, ...)."""
    all_but_channels = [0, *range(2, values.ndim)]
    centre = values.mean(all_but_channels, keepdim=True)
    variance = (values - centre).square_().mean(all_but_channels)  # ten times faster than var_mean
    return centre.flatten(), variance


def _merged(first: Tensor, second: Tensor) -> Tensor:
    """Number, mean and squared deviations, (3, C), of two sets of values -> those of both together."""
    first_count, first_mean, first_squares = first
    second_count, second_mean, second_squares = second
    count = first_count + second_count
    difference = second_mean - first_mean
    mean = first_mean + difference * (second_count / count)
    squares = first_squares + second_squares + difference.square() * (first_count * second_count / count)
    return torch.stack((count, mean, squares))


def layers_with_statistics(model: nn.Module) -> list[BATCH_NORMS]:
    """The layers of batch-norm that keep running statistics, in the order of the model's modules."""
    return [layer for layer in model.modules() if isinstance(layer, BATCH_NORMS) and layer.track_running_stats]


def one_value_error() -> BadImages:
    """The error for a batch that holds one value of a channel."""
    return BadImages(
        "batch-norm needs the statistics of more than one image",
        f"pass more images, and a {named('batch_size')} of 2 or more",
        setting="batch_size",
    )


def require_batch_statistics(model: nn.Module, batch_size: int) -> None:
    """Raise an error for a step of one image: batch-norm of vectors cannot estimate statistics from it."""
    if batch_size == 1 and any(isinstance(module, nn.BatchNorm1d) for module in model.modules()):
        raise one_value_error()
