"""The adaptation in the training loop: its steps, the scores of its epochs, the selection of one, and its files."""

from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import View, mirror
from tllib_ancon.measures import selection
from tllib_ancon.models.batch_norm import BatchNormPolicy, has_statistics
from tllib_ancon.models.classifier import Classifier, NetworkClassifier, ParameterGroups
from tllib_ancon.models.copies import restore_methods, without_graphs
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.runtime.types import Metrics, Record
from tllib_ancon.training.checkpointing import Stateful, copy_to_cpu
from tllib_ancon.training.collapse import Collapse
from tllib_ancon.training.epoch_scores import EpochScores
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.learning import choose_parameters, refuse_unread_settings
from tllib_ancon.training.loop import Step, TrainingLoop, require_batch_statistics
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.plan import Plan
from tllib_ancon.training.preparation import Preparation
from tllib_ancon.training.rate import PAIRS
from tllib_ancon.training.result import summary
from tllib_ancon.training.run import MemoryRun
from tllib_ancon.training.running_statistics import RunningStatistics
from tllib_ancon.training.step import AdaptationStep
from tllib_ancon.training.target_loaders import SAMPLE, TargetLoaders, teaching_loader
from tllib_ancon.training.teacher import Teacher

STATISTICS_SAMPLE = 512
"""Images at most, from which batch-norm statistics are estimated after an epoch."""


class Adaptation(TrainingLoop):
    """One run of adaptation, in any number of processes.

    Process r of W visits every W-th adapted image, from the r-th on, in an order of its own, and keeps the votes and
    averages of these alone. Batch statistics such as δ are over the batches of all processes. The memories of NRC and
    AaD hold all images in each process. Predictions on a domain are divided and put together.

    Epoch 0 scores the source model, which is changed in place. Labels of the target are used only for the record: of
    the source model, of every ``record_every``-th epoch, of the selected and of the last epoch. Only the labels in
    ``taught``, (N,) with -1 for none, add a cross-entropy to the loss, a batch in every step.
    """

    options: AdaptConfig
    first_epoch = 0

    def __init__(self, plan: Plan, run: MemoryRun):
        options = plan.config
        self.target = plan.target
        self.num_taught = 0 if plan.taught is None else int((plan.taught >= 0).sum())
        self.target_loaders = TargetLoaders(plan.target.without_labels(), options, plan.transforms)
        self.method = _create_method(plan.model, options, self.target_loaders)
        sample_suffices = self.method.trains and not options.held_out_share
        self.target_loaders.draw_sample(SAMPLE if sample_suffices else len(plan.target))
        self.scores = EpochScores(plan)
        state: dict[str, Stateful] = {"method": self.method, "first_labels": self.scores.first_predictions}
        self.teacher = plan.teacher
        if self.teacher is not None:
            self.teacher.open_loaders(self.target_loaders)
            self.method.teacher = self.teacher
            state["teacher"] = self.teacher
        groups = _parameter_groups(plan, self.method, self.target_loaders)
        super().__init__(options, run, plan.progress, plan.model, self._loaders(plan), groups, state)
        self.method.to(self.device)
        self.adaptation_step = AdaptationStep(self.method, self._outputs, plan.transforms, options.views, self.device)
        visited = len(Shard.of_this_process(len(self.target_loaders.sampled)))
        self.batch_norm = BatchNormPolicy(options.batch_norm, options.batch_norm_share, visited)
        self.passes = self._new_passes()
        self.preparation = Preparation(self.network, self.batch_norm, self.passes)
        self.running_statistics = RunningStatistics(self.network, self.passes, self._predict_training_images)

    def _loaders(self, plan: Plan) -> list[ImageLoader]:
        """The images to adapt on, and those whose labels teach."""
        if plan.taught is None:
            return [self.target_loaders.training]
        plan.progress.line(f"labels of {self.num_taught} images of the target teach")
        teaching = teaching_loader(plan.target, plan.taught, plan.config, plan.transforms, self.target_loaders.training)
        return [self.target_loaders.training, teaching]

    def _new_passes(self) -> Passes:
        return Passes(self.target_loaders, self._predict_now, mirrors=self.adaptation_step.second_view is mirror)

    def adapted_network(self) -> nn.Module:
        """The network with the weights of the selected epoch, in evaluation mode; in PyTorch's own layout, so that it
        computes what it computes when it is loaded again. It has no hook, patched method or graph of the training."""
        self._load_best()
        restore_methods(self.network)
        adapted = self.network.release() if isinstance(self.network, NetworkClassifier) else self.network
        without_graphs(adapted)
        return adapted.eval().to(memory_format=torch.contiguous_format)

    def result(self) -> Record:
        numbers = {"held_out": self.target_loaders.num_held_out, "taught": self.num_taught}
        return summary(self.options, self.metrics, self._selected_epoch(), numbers, len(self.target))

    # Epochs and steps.

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        prepared: dict[str, float] = {}
        if epoch == 1:
            prepared = self.preparation.prepare_statistics(self.method.trains, self.scores.first_predictions["labels"])
        if not self.method.trains:
            return prepared
        if epoch == 1 and self.teacher is not None:
            prepared["teacher_weight"] = self.teacher.choose_weight(self.target_loaders.sample, self._predict_now)
            self.progress.line(str(self.teacher))
        if self.method.needs_pass(epoch - 1):
            self.method.begin_epoch(epoch - 1, *self.passes.for_method(self.method.needs_all(epoch - 1)))
        self.passes.forget()
        if epoch == 1 and self.options.step_change is not None:
            prepared["lr"] = self._fit_rate(self.options.step_change)
        self.before_epoch = copy_to_cpu(self.network.state_dict())
        trained = super()._train_epoch(epoch)
        if self.preparation.mixes_statistics:
            self.running_statistics.renew(epoch)
        return prepared | trained

    def _predict_training_images(self, epoch: int) -> None:
        """Predict images that are augmented as in training. Batch-norm statistics are estimated from them."""
        training = self.target_loaders.training
        count = -(-STATISTICS_SAMPLE // (training.batch_size * processes.world_size()))
        with torch.inference_mode(), self.accelerator.autocast():
            for _, images in self.interruption.watch(islice(training, count), epoch):
                self.network.predict(self.adaptation_step.augmented(images))

    def _fit_rate(self, step_change: float) -> float:
        """Set the learning rate of all parameters to the fitted one, at most the setting ``lr``."""
        self._train_mode()
        batches = [*islice(zip(*self.loaders, strict=False), PAIRS + 1)]
        fitted = self.preparation.fit_rate(step_change, batches, self._parameters(), self.adaptation_step)
        assert self.options.lr is not None
        rate = min(fitted, self.options.lr)
        self._set_rate(rate)
        return rate

    def _train_mode(self) -> None:
        self.batch_norm.set_mode(self.network, self.options.dropout)

    def _loss(self, *batch: Any) -> Step:
        return self.adaptation_step(*batch)

    # Scores.

    def _score(self, metrics: Metrics) -> Outputs | None:
        """Score an epoch. If it has collapsed, training ends, and the model before it is scored in its place."""
        predictions = self._score_model(metrics)
        collapse = Collapse.in_record(self.metrics) if self._may_collapse(metrics["epoch"]) else None
        if collapse is None:
            return predictions
        self.network.load_state_dict(self.before_epoch)
        self.last_epoch = metrics["epoch"]
        metrics |= collapse.recorded()
        self.progress.line(collapse.line(self.last_epoch))
        return self._score_model(metrics)

    def _continue_from(self, metrics: list[Metrics]) -> None:
        super()._continue_from(metrics)
        if "infomax_collapsed" in metrics[-1]:
            self.last_epoch = metrics[-1]["epoch"]

    def _may_collapse(self, epoch: int) -> bool:
        """Whether a fall of the predictions' diversity is that of the weights.

        It may be that of a moving average of batch-norm statistics, which lags behind them."""
        statistics_lag = self.options.batch_norm == "target" and has_statistics(self.network)
        return epoch > 0 and self.method.trains and not statistics_lag

    def _score_model(self, metrics: Metrics) -> Outputs | None:
        """Score the model without labels, and for the record by the labels of the target, where it has some. Returns
        the predictions on the whole target, if there are any."""
        epoch = metrics["epoch"]
        self.passes.forget()
        if self.scores.by_labels_are_due(epoch, self.last_epoch) or self._next_epoch_needs_all(epoch):
            self._require_finite(self.passes.target().logits, epoch)
        self._require_finite(self.passes.scored().logits, epoch)
        metrics |= self.scores.without_labels(self.passes.scored(), epoch)
        if epoch == 0 and self.teacher is not None:
            self._ask_the_teacher(self.teacher)
        if self._keeps_predictions():
            self._require_finite(self.passes.target().logits, epoch)
        predictions = self.passes.target() if self.passes.target_is_predicted() else None
        if predictions is not None:
            metrics |= self.scores.by_labels(self.passes)
        if self.scores.score_by_labels is not None and epoch == self.last_epoch:
            self._record_the_selected_epoch()
        return predictions

    def _next_epoch_needs_all(self, epoch: int) -> bool:
        """Whether the next epoch begins with a pass of the current model over all images."""
        if not self.method.needs_pass(epoch) or not self.method.needs_all(epoch):
            return False
        model_changes_first = epoch == 0 and self.preparation.mixes_statistics
        return not self.target_loaders.num_held_out and not model_changes_first

    def _ask_the_teacher(self, teacher: Teacher) -> None:
        def predict(model: nn.Module, loader: ImageLoader, view: View | None) -> Outputs:
            return self._predict(loader, 0, view, model)

        teacher.predict(predict)

    def _record_the_selected_epoch(self) -> None:
        """Add the accuracy of the selected epoch, if it was not scheduled to be recorded."""
        selected = self.metrics[self._selected_epoch()]
        if "accuracy" in selected:
            return
        last = copy_to_cpu(self.network.state_dict())
        self._load_best()
        selected |= self.scores.by_labels(self._new_passes())
        self.network.load_state_dict(last)

    def _predict_now(self, loader: Any, view: View | None) -> Outputs:
        epoch = self.metrics[-1]["epoch"] if self.metrics else 0
        return self._predict(loader, epoch, view)

    # Files.

    def _keep(self, scored: Outputs | None = None) -> None:
        epoch = self.metrics[-1]["epoch"]
        if epoch == 0 and self.options.checkpoint is None:
            self.run.save_source()
        if self._keeps_predictions():
            self.run.save_predictions(scored or self.passes.target(), self.target, self._votes_of_the_target())

    def _votes_of_the_target(self) -> Tensor | None:
        """f̄ of every image, (N, K); zeros for one that was held out. None for a method without votes."""
        votes = self.method.votes(torch.tensor(self.target_loaders.shard.padded_positions))
        return None if votes is None else self.target_loaders.rows_of_the_target(votes)

    def _keeps_predictions(self) -> bool:
        return self.options.save_predictions and self._is_best()

    def _is_best(self) -> bool:
        epoch = self.metrics[-1]["epoch"]
        return bool(epoch > 0 and self._selected_epoch() == epoch)

    def _selected_epoch(self) -> int:
        return 1 + selection.chosen(self.metrics[1:], self.options.criterion)


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
    if method.ensemble is not None:
        method.ensemble.compared = True  # epoch 0 compares all logits
    return method


def _parameter_groups(plan: Plan, method: methods.Method, images: TargetLoaders) -> ParameterGroups:
    """The parameters that learn, with their rates; an empty group where only statistics change."""
    model = plan.model
    options = plan.config
    assert options.lr is not None
    refuse_unread_settings(options, model, method.trains)
    require_batch_statistics(model, images.training.batch_size)
    if not method.trains:
        return [{"params": []}]
    plan.progress.lines(choose_parameters(model, options.adapted))
    return model.get_parameters(options.lr)
