"""ETA: entropy minimisation on the predictions that are certain and unlike the usual one."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tllib_ancon.config.arguments import validated
from tllib_ancon.config.types import Fraction, Number
from tllib_ancon.runtime import processes
from tllib_ancon.self_training.checks import FixedPrecision, check_tensor
from tllib_ancon.self_training.method import Method, Visit, option_of
from tllib_ancon.self_training.registry import register
from tllib_ancon.self_training.tent import softmax_entropy

MOMENTUM = 0.9


class SampleEfficientEntropy(FixedPrecision):
    r"""Tent's loss of selected samples, weighted by their certainty.

    .. math::
        L = \frac{1}{|S|} Σ_{x ∈ S} e^{E_0 - H(f(x))} H(f(x)),   S = \{x: H(f(x)) < E_0, cos(f(x), m) < ε\}

    with f the softmax, H its entropy; the weights get no gradient. m is a moving average of predictions: the mean of
    those in the first S, for which all of them are unlike m; then, after each S,
    :math:`m ← 0.9 m + 0.1 E_{x ∈ S}[f(x)]`. Without any sample in S, L is 0 and m stays.

    In a run of many processes (``torch.distributed``) S is of the batches of all. In evaluation mode m is not updated;
    a row with NaN or infinity is never in S.

    Where K classes are equally frequent, a certain prediction has a cosine of :math:`1 / \sqrt K` with m, so that a
    smaller ε selects nothing. The paper's ε are 0.4 for CIFAR-10 and 0.05 for ImageNet, of 1,000 classes.

    Args:
        num_classes (int): K
        entropy_margin (float): :math:`E_0 / log K` in (0, 1]. Default: 0.4
        similarity_margin (float, optional): ε in (0, 1]. Default: :math:`0.4 \sqrt{10 / K}`, at most 1: the paper's for
            ten classes, and for others as far above :math:`1 / \sqrt K`

    Inputs: logits (B, K)

    Outputs: float32 scalar loss, at least 0

    Source: Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022, Eq. 2–6, whose EATA is
    this with a penalty on changes of parameters that matter to the source (Eq. 8), left out here; without it the paper
    calls it ETA. As in the official code, m takes in selected predictions alone.
    """

    average: Tensor

    @validated
    def __init__(
        self,
        num_classes: Number,
        entropy_margin: Fraction = 0.4,
        similarity_margin: Fraction | None = None,
    ):
        super().__init__()
        self.entropy_margin = entropy_margin * math.log(num_classes)
        self.similarity_margin = similarity_margin or min(1.0, 0.4 * math.sqrt(10 / num_classes))
        self.register_buffer("average", torch.zeros(num_classes))

    def forward(self, logits: Tensor) -> Tensor:
        check_tensor("logits", logits, ("B", len(self.average)))
        entropies = softmax_entropy(logits)
        predictions = logits.detach().float().softmax(1)
        similarities = nn.functional.cosine_similarity(predictions, self.average[None])  # 0 before there is an average
        selected = (entropies.detach() < self.entropy_margin) & (similarities < self.similarity_margin)
        count = processes.mean(selected.sum().float())
        divisor = torch.where(count > 0, count, 1.0)
        if self.training:
            sum_of_selected = predictions.masked_fill(~selected[:, None], 0).sum(0)
            mean = processes.mean(sum_of_selected) / divisor
            moved = torch.where(self.average.any(), torch.lerp(mean, self.average, MOMENTUM), mean)
            self.average.copy_(torch.where(count > 0, moved, self.average))
        weights = (self.entropy_margin - entropies.detach()).exp()
        return (weights * entropies).masked_fill(~selected, 0).sum() / divisor


@register("eta")
class _ETA(Method):
    """Entropy minimisation of predictions that are certain and unlike the usual one (Niu et al., 2022)."""

    makes_labels = False
    training_defaults: ClassVar = {"adapted": "norm-affine"}
    learns_from_both_views = False

    entropy_margin = option_of(
        SampleEfficientEntropy,
        "entropy_margin",
        help="ETA: entropy, as a share of log K, below which a prediction counts",
    )
    similarity_margin = option_of(
        SampleEfficientEntropy,
        "similarity_margin",
        help="ETA: cosine with the moving average of predictions below which one counts (default: 0.4 for 10 classes, "
        "0.04 for 1000)",
    )

    def __init__(self, **sizes_and_options: Any):
        super().__init__(**sizes_and_options)
        self.entropy = SampleEfficientEntropy(self.num_classes, self.entropy_margin, self.similarity_margin)

    def objective(self, visit: Visit, targets: Tensor) -> Tensor:
        loss: Tensor = self.entropy(visit.logits)
        return loss
