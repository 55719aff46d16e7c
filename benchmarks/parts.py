"""Parts of the default that no setting turns off, as methods for the study of its parts."""

from tllib_ancon.methods import register
from tllib_ancon.self_training.adaptive import AdaptiveSmoothing, _AnConAuto
from tllib_ancon.self_training.anchored import one_hot_labels
from tllib_ancon.self_training.checks import finite_rows


class _UnweightedSmoothing(AdaptiveSmoothing):
    def forward(self, indices, logits, pseudo_labels=None, probabilities=None):
        counted = self.ensemble(indices, logits, probabilities) + one_hot_labels(logits, pseudo_labels)
        targets = counted / counted.sum(1, keepdim=True)
        if self.training:
            self._move_shares(targets, finite_rows(logits)[:, None])
        return targets


@register("no-class-weights")
class _NoClassWeights(_AnConAuto):
    """``ancon-auto`` with targets whose classes all count as 1."""

    def __init__(self, **sizes_and_options):
        super().__init__(**sizes_and_options)
        self.adaptive = _UnweightedSmoothing(
            self.num_rows, self.num_classes, self.class_prior, self.prior_shrinkage, **self.ensemble_options()
        )
