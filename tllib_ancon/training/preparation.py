"""What an adaptation does between the score of the source model and its first step."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tllib_ancon.models.batch_norm import BatchNormPolicy, has_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.training.collapse import Diversity
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.rate import fitted_rate
from tllib_ancon.training.step import AdaptationStep


@dataclass(frozen=True)
class Preparation:
    """Mixed batch-norm statistics and the fitted rate; the numbers go into the record of the first epoch.

    Args:
        network: source model, changed in place
        policy: of batch-norm
        passes: predictions of the network
    """

    network: Classifier
    policy: BatchNormPolicy
    passes: Passes

    @property
    def mixes_statistics(self) -> bool:
        return self.policy.statistics == "mixed" and has_statistics(self.network)

    def prepare_statistics(self, trains: bool, scored_labels: Tensor) -> dict[str, float]:
        """Set batch-norm up before the first step.

        Args:
            trains: whether the method trains; of one that does not, the statistics are all that changes
            scored_labels: classes that the source model predicts on the images that score an epoch

        Returns: numbers for the record
        """
        if not trains and self.policy.statistics == "target":
            self._estimate_statistics_of_the_target()
        if not self.mixes_statistics:
            return {}
        return self._mix_statistics(None if self.passes.loaders.num_held_out else scored_labels)

    def _estimate_statistics_of_the_target(self) -> None:
        """Estimate all batch-norm statistics from the sample: all that AdaBN does."""
        self.passes.forget()
        with self.policy.estimated(self.network):
            self.passes.sample()
        self.passes.forget()

    def _mix_statistics(self, labels_of_the_sample: Tensor | None) -> dict[str, float]:
        """Mix the source's statistics into scale and shift, with a weight from the sample.

        Args:
            labels_of_the_sample: classes that the source model predicts on it; None: they are predicted

        Returns: the weight, and the diversity of the predictions before training
        """

        def predict_sample() -> Tensor:
            self.passes.forget()
            return self.passes.sample().logits

        def predict_first() -> Tensor:
            self.passes.forget()
            return self.passes.first_of_sample().logits

        numbers = self.policy.prepare(self.network, predict_sample, predict_first, labels_of_the_sample)
        before = Diversity.of(self.passes.scored().logits)
        return {**numbers, "effective_classes_before": before.effective_classes, "infomax_before": before.infomax}

    def fit_rate(
        self, step_change: float, batches: Sequence[Any], parameters: Sequence[nn.Parameter], loss: AdaptationStep
    ) -> float:
        """The rate of :func:`fitted_rate`. The trial steps leave network and method as they were."""
        times = 1.0 if loss.second_view is None else loss.method.step_with_two_views
        state_of_network = copy.deepcopy(self.network.state_dict())
        state_of_method = copy.deepcopy(loss.method.state_dict())
        rate = fitted_rate(
            times * step_change,
            batches,
            parameters,
            lambda batch: loss(*batch)[0],
            lambda batch: loss.probabilities(*batch),
        )
        self.network.load_state_dict(state_of_network)
        loss.method.load_state_dict(state_of_method)
        return rate
