"""The adaptation in the training loop: its steps, the scores of its epochs, the selection of one, and its files."""

from typing import Any

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.transforms import mirror
from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import BatchNormPolicy, has_statistics, require_batch_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.runtime.types import Metrics, Record
from tllib_ancon.training.checkpointing import Stateful
from tllib_ancon.training.collapse import CollapseGuard, diversity_before_training
from tllib_ancon.training.epoch_scores import EpochScores
from tllib_ancon.training.learning import parameter_groups
from tllib_ancon.training.loop import Step, TrainingLoop
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.plan import Plan
from tllib_ancon.training.preparation import Preparation
from tllib_ancon.training.run import MemoryRun
from tllib_ancon.training.running_statistics import RunningStatistics
from tllib_ancon.training.step import AdaptationStep
from tllib_ancon.training.target_loaders import TargetLoaders


class Adaptation(TrainingLoop):
    """One run of adaptation, in any number of processes.

    Process r of W visits every W-th adapted image, from the r-th on, in an order of its own, and keeps the votes and
    averages of these alone. Batch statistics such as δ are over the batches of all processes. The memories of NRC and
    AaD hold all images in each process. Predictions on a domain are divided and put together.

    Epoch 0 scores the source model, which is changed in place. Labels of the target are used only for the record of
    every epoch.
    """

    options: AdaptConfig
    first_epoch = 0

    def __init__(self, plan: Plan, run: MemoryRun):
        options = plan.config
        loaders = TargetLoaders(plan.target.without_labels(), options, plan.transforms)
        self.target = plan.target
        self.target_loaders = loaders
        self.method = _create_method(plan.model, options, loaders)
        self.scores = EpochScores(plan)
        state: dict[str, Stateful] = {"method": self.method, "first_labels": self.scores}
        self.teacher = plan.teacher
        if self.teacher is not None:
            self.teacher.open_loaders(loaders)
            self.method.teacher = self.teacher
            state["teacher"] = self.teacher
        self.guard = CollapseGuard(plan.model, self.method.trains, options.batch_norm)
        state["guard"] = self.guard
        groups = parameter_groups(options, plan.model, self.method.trains, plan.progress)
        require_batch_statistics(plan.model, loaders.training.batch_size)
        super().__init__(options, run, plan.progress, plan.model, [loaders.training], groups, state)
        self.method.to(self.device)
        self.step = AdaptationStep(self.method, self._outputs, plan.transforms, options.views, self.device)
        self.passes = Passes(loaders, self._predict, mirrors=self.step.second_view is mirror)
        visited = len(Shard.of_this_process(len(loaders.sampled)))
        self.batch_norm_policy = BatchNormPolicy(options.batch_norm, visited)
        self.preparation = Preparation(
            options, self.network, self.batch_norm_policy, self.passes, self.step, self.optimizer, self.schedule
        )
        self.running_statistics = RunningStatistics(
            self.network, self.passes, loaders.training, self.step, self.accelerator.autocast, self.interruption
        )

    def result(self) -> Record:
        start = self.metrics[0]
        selected_epoch = self._selected_epoch()
        selected = self.metrics[selected_epoch]
        criterion = self.options.criterion
        return {
            "method": self.options.method,
            "criterion": criterion,
            "held_out": self.target_loaders.num_held_out,
            "start": start,
            "selected_epoch": selected_epoch,
            "selected": selected,
            "better_than_start": selection.better_than_start(start, selected, criterion),
            "last": self.metrics[-1],
        }

    # Epochs and steps.

    def _run_epochs(self) -> None:
        if self.method.trains:
            lag = self.batch_norm_policy.note_on_lag(self.network, self._steps_of_the_schedule())
            if lag is not None:
                self.progress.line(str(lag))
        super()._run_epochs()

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        prepared: dict[str, float] = {}
        if epoch == 1:
            prepared = self._prepare()
        if not self.method.trains:
            return prepared
        self._begin_epoch_of_method(epoch - 1)
        if epoch == 1:
            prepared |= self.preparation.fit_rate()
            self.guard.remember(0, diversity_before_training([*self.metrics, prepared]).infomax)
        trained = super()._train_epoch(epoch)
        if self.preparation.mixes_statistics:
            self.running_statistics.renew(epoch)
        return prepared | trained

    def _prepare(self) -> dict[str, float]:
        """Decide what the method's first pass depends on: batch-norm's statistics, and the weight of a teacher."""
        prepared = self.preparation.prepare_statistics(self.scores.first_labels)
        if self.teacher is not None and self.method.trains:
            prepared["teacher_weight"] = self.teacher.choose_weight(self.target_loaders.sample, self._predict)
            self.progress.line(str(self.teacher))
        return prepared

    def _begin_epoch_of_method(self, epoch: int) -> None:
        """Hand the method the predictions that it needs before this epoch, counted from 0."""
        if self.method.needs_pass(epoch):
            outputs = self.passes.for_method(self.method.needs_all(epoch))
            self.method.begin_epoch(epoch, *outputs)
        self.passes.forget()

    def _train_mode(self) -> None:
        self.batch_norm_policy.set_mode(self.network, self.options.dropout)

    def _loss(self, *batch: Any) -> Step:
        return self.step(*batch)

    # Scores.

    def _score(self, metrics: Metrics) -> None:
        """Score an epoch. If it has collapsed, training ends, and the best model is scored in its place."""
        self._score_model(metrics)
        collapsed = self.guard.undo_collapse(self.metrics)
        if collapsed is None:
            return
        self.last_epoch = metrics["epoch"]
        self.progress.line(str(self.guard.note(collapsed, self.metrics, self.options.padding)))
        metrics |= {f"{name}_collapsed": value for name, value in collapsed._asdict().items()}
        self._score_model(metrics)

    def _continue_from(self, metrics: list[Metrics]) -> None:
        super()._continue_from(metrics)
        if "infomax_collapsed" in metrics[-1]:
            self.last_epoch = metrics[-1]["epoch"]

    def _score_model(self, metrics: Metrics) -> None:
        """Score the model without labels, and for the record by the labels of the target, where it has some."""
        epoch = metrics["epoch"]
        passes = self.passes
        passes.forget()
        if self.target.labels is not None or self._next_epoch_needs_all(epoch):
            self._require_finite(passes.target().logits)
        scored = passes.scored()
        self._require_finite(scored.logits)
        metrics |= self.scores.without_labels(scored, epoch)
        if epoch == 0 and self.teacher is not None:
            self.teacher.predict(self._predict)
        if self._keeps_predictions():
            self._require_finite(passes.target().logits)
        if self.target.labels is not None:
            metrics |= self.scores.by_labels(passes)

    def _next_epoch_needs_all(self, epoch: int) -> bool:
        """Whether the next epoch begins with a pass of the current model over all images."""
        model_changes_first = epoch == 0 and self.preparation.mixes_statistics
        return self.method.needs_all(epoch) and not self.target_loaders.num_held_out and not model_changes_first

    # The selection, and what is kept of it.

    def _selected_epoch(self) -> int:
        return 1 + selection.selected_epoch(self.metrics[1:], self.options.criterion)

    def _is_best(self) -> bool:
        epoch = self.metrics[-1]["epoch"]
        return bool(epoch > 0 and self._selected_epoch() == epoch)

    def _keeps_predictions(self) -> bool:
        return self.options.save_predictions and self._is_best()

    def _keep(self) -> None:
        epoch = self.metrics[-1]["epoch"]
        if epoch == 0 and self.options.checkpoint is None:
            self.run.save_source()
        if self._keeps_predictions():
            votes = self.target_loaders.votes_of_the_target(self.method)
            self.run.save_predictions(self.passes.target(), self.target, votes)


def _create_method(model: Classifier, options: AdaptConfig, images: TargetLoaders) -> methods.Method:
    method = methods.create(
        options.method,
        num_samples=images.shard.num_samples,
        num_classes=model.num_classes,
        feature_dim=model.features_dim,
        total_steps=options.epochs * len(images.training),
        head=model.head,
        shard=images.shard,
        **options.options,
    )
    method.features_follow_target = options.batch_norm != "source" and has_statistics(model)
    if method.ensemble is not None:
        method.ensemble.has_checked_logits = True  # epoch 0 checks all logits
    return method
