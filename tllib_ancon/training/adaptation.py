"""The composition of an adaptation: its trainer, its loss and its callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.transforms import mirror
from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import BatchNormPolicy, has_statistics, require_batch_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.opening.open import Opened
from tllib_ancon.runs.directory import MemoryRun
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.runtime.types import Metrics, Record
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.guard import CollapseGuard
from tllib_ancon.training.callbacks.method import MethodPredictions
from tllib_ancon.training.callbacks.rate import FittedRate
from tllib_ancon.training.callbacks.scores import Scores
from tllib_ancon.training.callbacks.statistics import (
    EstimatedStatistics,
    MixedStatistics,
    RenewedStatistics,
    StatisticsOfBatches,
)
from tllib_ancon.training.callbacks.storage import BestPredictions, SourceModel, Storage
from tllib_ancon.training.callbacks.table import Table
from tllib_ancon.training.callbacks.teacher import Teacher
from tllib_ancon.training.learning import parameter_groups
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.step import AdaptationStep
from tllib_ancon.training.target_loaders import TargetLoaders
from tllib_ancon.training.trainer import Trainer


@dataclass(frozen=True)
class Adaptation:
    """One adaptation, in any number of processes.

    Process r of W visits every W-th adapted image, from the r-th on, in an order of its own, and keeps the votes and
    averages of these alone. Batch statistics such as δ are over the batches of all processes. The memories of NRC and
    AaD hold all images in each process. Predictions on a domain are divided and put together.

    Epoch 0 scores the source model, which is changed in place. Labels of the target are used only for the record of
    every epoch.

    Attributes:
        config: settings
        loaders: of the target
        method: that is trained
        trainer: which trains it
        step: the loss of a step
        callbacks: in the order in which the trainer calls them
    """

    config: AdaptConfig
    loaders: TargetLoaders
    method: methods.Method
    trainer: Trainer
    step: AdaptationStep
    callbacks: Sequence[Callback]

    def fit(self, settings: Record) -> Record:
        """Train, or resume the run of these settings; returns what ``result.json`` holds."""
        return self.trainer.fit(self.step, self.callbacks, settings, self.result_of, first_epoch=0)

    def result_of(self, metrics: Sequence[Metrics]) -> Record:
        """What ``result.json`` holds, from the metrics of all epochs."""
        criterion = self.config.criterion
        start = metrics[0]
        epoch = selected_epoch(metrics, criterion)
        selected = metrics[epoch]
        return {
            "method": self.config.method,
            "criterion": criterion,
            "held_out": self.loaders.num_held_out,
            "start": start,
            "selected_epoch": epoch,
            "selected": selected,
            "better_than_start": selection.better_than_start(start, selected, criterion),
            "last": metrics[-1],
        }


def compose(
    opened: Opened[AdaptConfig], run: MemoryRun, teacher: Teacher | None = None, callbacks: Sequence[Callback] = ()
) -> Adaptation:
    """Compose the adaptation of a model to images.

    Args:
        opened: both, and the settings
        run: where the adaptation is stored
        teacher: another model whose predictions enter the pseudo-labels
        callbacks: of the user; they are called when an epoch is scored, and before it is stored
    """
    config = opened.settings
    model = opened.classifier
    progress = Progress(config.quiet)
    loaders = TargetLoaders(opened.images.without_labels(), config, opened.transforms)
    method = _create_method(model, config, loaders)
    groups = parameter_groups(config, model, method.trains, progress)
    require_batch_statistics(model, loaders.training.batch_size)
    trainer = Trainer(model, [loaders.training], groups, config, run, progress, parts={"method": method})
    method.to(trainer.device)
    policy = BatchNormPolicy(config.batch_norm, num_images=len(Shard.of_this_process(len(loaders.sampled))))
    step = AdaptationStep(method, trainer, opened.transforms, config, policy)
    passes = Passes(loaders, trainer.predict, mirrors=step.second_view is mirror)
    scores = Scores(opened.images, passes, method)
    all_callbacks = [
        *_statistics(step, passes, scores),
        *_teacher(teacher, method, loaders),
        MethodPredictions(method, passes),
        *_fitted_rate(step, config.step_change),
        *_renewed_statistics(step, passes),
        scores,
        *_guard(step, scores, config.padding or 0),
        *callbacks,
        *_stored(opened, run, passes, method),
        Table(),
    ]
    return Adaptation(config, loaders, method, trainer, step, all_callbacks)


def selected_epoch(metrics: Sequence[Metrics], criterion: str) -> int:
    """The epoch that a criterion selects without labels; epoch 0, the source model, is never selected."""
    return 1 + selection.selected_epoch(metrics[1:], criterion)


def _statistics(step: AdaptationStep, passes: Passes, scores: Scores) -> list[Callback]:
    if not step.method.trains and step.policy.statistics == "target":
        return [EstimatedStatistics(step.policy, passes)]
    if step.mixes_statistics:
        return [MixedStatistics(step.policy, passes, scores)]
    return [StatisticsOfBatches(step.policy)]


def _teacher(teacher: Teacher | None, method: methods.Method, loaders: TargetLoaders) -> list[Callback]:
    if teacher is None:
        return []
    method.teacher = teacher
    teacher.open_loaders(loaders)
    return [teacher]


def _fitted_rate(step: AdaptationStep, step_change: float | None) -> list[Callback]:
    if step_change is None or not step.method.trains:
        return []
    return [FittedRate(step, step_change)]


def _renewed_statistics(step: AdaptationStep, passes: Passes) -> list[Callback]:
    if step.mixes_statistics and step.method.trains:
        return [RenewedStatistics(passes, passes.loaders.training, step)]
    return []


def _guard(step: AdaptationStep, scores: Scores, padding: int) -> list[Callback]:
    """The guard against collapse. With the target's statistics their moving average lags behind the weights, and the
    diversity may fall for this reason alone."""
    statistics_lag = step.policy.statistics == "target" and has_statistics(step.trainer.network)
    if not step.method.trains or statistics_lag:
        return []
    return [CollapseGuard(scores, padding)]


def _stored(opened: Opened[AdaptConfig], run: MemoryRun, passes: Passes, method: methods.Method) -> list[Callback]:
    config = opened.settings

    def is_best(metrics: Sequence[Metrics]) -> bool:
        epoch = len(metrics) - 1
        return epoch > 0 and selected_epoch(metrics, config.criterion) == epoch

    stored: list[Callback] = []
    if config.checkpoint is None:
        stored.append(SourceModel(run))
    if config.save_predictions:
        stored.append(BestPredictions(run, is_best, opened.images, passes, method))
    stored.append(Storage(run, is_best))
    return stored


def _create_method(model: Classifier, config: AdaptConfig, loaders: TargetLoaders) -> methods.Method:
    method = methods.create(
        config.method,
        num_samples=loaders.shard.num_samples,
        num_classes=model.num_classes,
        feature_dim=model.features_dim,
        total_steps=config.epochs * len(loaders.training),
        head=model.head,
        shard=loaders.shard,
        **config.options,
    )
    method.features_follow_target = config.batch_norm != "source" and has_statistics(model)
    if method.ensemble is not None:
        method.ensemble.has_checked_logits = True  # epoch 0 checks all logits
    return method
