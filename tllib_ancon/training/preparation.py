"""What an adaptation does between the score of the source model and its first step."""

import copy
from dataclasses import dataclass
from itertools import islice

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.models.batch_norm import BatchNormPolicy, has_statistics
from tllib_ancon.models.classifier import Classifier, trainable
from tllib_ancon.training.collapse import Diversity
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.rate import PAIRS, fitted_rate
from tllib_ancon.training.step import AdaptationStep


@dataclass(frozen=True)
class Preparation:
    """Mixed batch-norm statistics and the fitted rate; the numbers go into the record of the first epoch.

    Args:
        options: settings of the adaptation
        network: source model, changed in place
        policy: of batch-norm
        passes: predictions of the network
        step: loss of a step
        optimizer: of the parameters that learn
        schedule: of their rates
    """

    options: AdaptConfig
    network: Classifier
    policy: BatchNormPolicy
    passes: Passes
    step: AdaptationStep
    optimizer: Optimizer
    schedule: LambdaLR

    @property
    def mixes_statistics(self) -> bool:
        return self.policy.mixes and has_statistics(self.network)

    def prepare_statistics(self, scored_labels: Tensor) -> dict[str, float]:
        """Set batch-norm up before the first step. Of a method that does not train, the statistics are all that
        changes.

        Args:
            scored_labels: classes that the source model predicts on the images that score an epoch

        Returns: numbers for the record
        """
        if not self.step.method.trains and self.policy.statistics == "target":
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

    def fit_rate(self) -> dict[str, float]:
        """Set the learning rate of all parameters to the fitted one, at most the setting ``lr``.

        The trial steps leave network and method as they were.

        Returns: the rate, for the record; nothing where the settings do not fit it
        """
        if self.options.step_change is None:
            return {}
        self.policy.set_mode(self.network, self.options.dropout)
        step = self.step
        views = 1 if step.second_view is None else 2
        state_of_network = copy.deepcopy(self.network.state_dict())
        state_of_method = copy.deepcopy(step.method.state_dict())
        batches = zip(self.passes.loaders.training)
        fitted = fitted_rate(
            step.method.step_multiple(views) * self.options.step_change,
            [*islice(batches, PAIRS + 1)],
            trainable(self.network),
            lambda batch: step(*batch)[0],
            lambda batch: step.probabilities(*batch),
        )
        self.network.load_state_dict(state_of_network)
        step.method.load_state_dict(state_of_method)
        rate = min(fitted, self.options.lr)
        _set_rate(self.optimizer, self.schedule, rate)
        return {"lr": rate}


def _set_rate(optimizer: Optimizer, schedule: LambdaLR, rate: float) -> None:
    """Let all parameters learn at this rate, from which the schedule decays."""
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["initial_lr"] = rate
    schedule.base_lrs = [rate] * len(optimizer.param_groups)
