"""The adaptation in the training loop: its steps, the scores of its epochs, the selection of one, and its files."""

from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.batches import Batch, concatenated, to_device
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import mirror
from tllib_ancon.measures import indicators, selection
from tllib_ancon.models.batch_norm import BatchNormPolicy, estimated_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier, NetworkClassifier
from tllib_ancon.models.copies import restore_methods, without_graphs
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.self_training.checks import PROBABILITIES, are_probabilities
from tllib_ancon.training.checkpointing import StoredTensors, copy_to_cpu
from tllib_ancon.training.collapse import REMAINING, Diversity, has_collapsed
from tllib_ancon.training.inference import Outputs, View, recorder, scores_under_dropout
from tllib_ancon.training.learning import choose_parameters, refuse_without_effect
from tllib_ancon.training.loop import Step, TrainingLoop, require_batch_statistics
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.plan import Plan
from tllib_ancon.training.preparation import Preparation
from tllib_ancon.training.rate import PAIRS
from tllib_ancon.training.run import MemoryRun
from tllib_ancon.training.target_loaders import SAMPLE, TargetLoaders, teaching_loader

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
        model = plan.model
        assert model is not None
        target = plan.target
        options = plan.config
        transforms = plan.transforms
        progress = plan.progress
        self.second_view = transforms.second_view if options.views == 2 else None
        self.augment = transforms.augment
        self.images = TargetLoaders(target.without_labels(), options, transforms)
        steps = options.epochs * len(self.images.training)
        self.method = self._create_method(model, options, steps)
        self.images.draw_sample(SAMPLE if self.method.trains and not options.held_out_share else len(target))
        refuse_without_effect(options, model, self.method.trains)
        require_batch_statistics(model, self.images.training.batch_size)
        if self.method.trains:
            progress.lines(choose_parameters(model, options.adapted))
        assert options.lr is not None
        groups = model.get_parameters(options.lr) if self.method.trains else []
        loaders = [self.images.training]
        self.num_taught = 0
        if plan.taught is not None:
            self.num_taught = int((plan.taught >= 0).sum())
            loaders.append(teaching_loader(target, plan.taught, options, transforms, self.images.training))
            progress.line(f"labels of {self.num_taught} images of the target teach")
        self.first_predictions = StoredTensors()
        super().__init__(
            options,
            run,
            progress,
            model,
            loaders,
            groups or [{"params": []}],  # where only statistics change
            {"method": self.method, "first_labels": self.first_predictions},
        )
        self.teacher = plan.teacher
        if self.teacher is not None:
            self.teacher.open_loaders(self.images)
            self.method.teacher = self.teacher
            self.parts["teacher"] = self.teacher
        self.target = target
        self.record = recorder(target)
        self.source_statistics = plan.source.statistics
        self.method.to(self.device)
        visited = len(Shard.of_this_process(len(self.images.sampled)))
        self.batch_norm = BatchNormPolicy(options.batch_norm, options.batch_norm_share, visited)
        self.passes = Passes(self.images, self._predict_now, mirrors=self.second_view is mirror)
        self.preparation = Preparation(self.network, self.batch_norm, self.passes)

    def _create_method(self, model: Classifier, options: AdaptConfig, steps: int) -> methods.Method:
        method = methods.create(
            options.method,
            num_samples=self.images.shard.num_samples,
            num_classes=model.num_classes,
            feature_dim=model.features_dim,
            total_steps=steps,
            head=model.head,
            shard=self.images.shard,
            **options.options,
        )
        if method.ensemble is not None:
            method.ensemble.compared = True  # epoch 0 compares all logits
        return method

    def adapted(self) -> nn.Module:
        """The network with the weights of the selected epoch, in evaluation mode; in PyTorch's own layout, so that it
        computes what it computes when it is loaded again. It has no hook, patched method or graph of the training."""
        self._load_best()
        restore_methods(self.network)
        adapted = self.network.release() if isinstance(self.network, NetworkClassifier) else self.network
        without_graphs(adapted)
        return adapted.eval().to(memory_format=torch.contiguous_format)

    def result(self) -> dict[str, Any]:
        criterion = self.options.criterion
        epoch = self._selected_epoch()
        start = self.metrics[0]
        selected = self.metrics[epoch]
        scores = {**self.metrics[1], **start}
        result = {
            "method": self.options.method,
            "criterion": criterion,
            "held_out": self.images.num_held_out,
            "start": start,
            "selected_epoch": epoch,
            "selected": selected,
            "better_than_start": selection.better_than_start(start, selected, criterion),
            "last": self.metrics[-1],
        }
        if self.num_taught:
            result["taught"] = self.num_taught
        result["assessment"] = {
            "indicators": {name: scores[name] for name in indicators.INDICATORS if name in scores},
            "labels_needed": indicators.labels_needed(0.5, len(self.target)),
        }
        return result

    # Epochs and steps.

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        prepared = self._prepare() if epoch == 1 else {}
        if not self.method.trains:
            return prepared
        if epoch == 1 and self.teacher is not None:
            prepared["teacher_weight"] = self.teacher.choose_weight(self.images.sample, self._predict_now)
            self.progress.line(str(self.teacher))
        if self.method.needs_pass(epoch - 1):
            outputs = self.passes.adapted() if self.method.needs_all(epoch - 1) else self._pass_over_the_sample()
            self.method.begin_epoch(epoch - 1, *outputs)
        self.passes.forget()
        if epoch == 1 and self.options.step_change is not None:
            prepared["lr"] = self._fit_rate(self.options.step_change)
        self.before_epoch = copy_to_cpu(self.network.state_dict())
        trained = super()._train_epoch(epoch)
        self._renew_statistics(epoch)
        return prepared | trained

    def _prepare(self) -> dict[str, float]:
        """Set batch-norm up; returns numbers for the record."""
        if not self.method.trains and self.options.batch_norm == "target":
            self.preparation.estimate_statistics_of_the_target()
        if not self.preparation.mixes_statistics:
            return {}
        labels = None if self.images.num_held_out else self.first_predictions["labels"]
        return self.preparation.mix_statistics(labels)

    def _pass_over_the_sample(self) -> Outputs:
        """Predictions for a method that a random sample serves. Without a hold-out the epoch was scored by them."""
        if self.images.num_held_out:
            return self.passes.sample()
        return self.passes.scored()

    def _renew_statistics(self, epoch: int) -> None:
        """Estimate the running statistics of mixed batch-norm anew if their moving average lags behind the weights.

        It lags in short epochs at a high rate. InfoMax of the same weights is then much lower than with estimated
        statistics. Elsewhere the moving average predicts as well or better, and stays. Training reads no running
        statistics. See ``benchmarks/results/harm.md``.
        """
        if not self.preparation.mixes_statistics:
            return
        moving = copy_to_cpu(self.network.state_dict())
        infomax_of_moving = self._infomax_of_few()
        self._estimate_statistics(epoch)
        if infomax_of_moving >= REMAINING * self._infomax_of_few():
            self.network.load_state_dict(moving)

    def _estimate_statistics(self, epoch: int) -> None:
        """Estimate the running statistics of batch-norm from training images.

        They are augmented as in training, because networks learn to predict plain images by the statistics of
        augmented ones.
        """
        training = self.images.training
        count = -(-STATISTICS_SAMPLE // (training.batch_size * processes.world_size()))
        with estimated_statistics(self.network), torch.inference_mode(), self.accelerator.autocast():
            for _, images in self.interruption.watch(islice(training, count), epoch):
                self.network.predict(self._augmented(images))

    def _infomax_of_few(self) -> float:
        self.passes.forget()
        return selection.infomax(self.passes.first_of_sample().logits.softmax(1))

    def _fit_rate(self, step_change: float) -> float:
        """Set the learning rate of all parameters to the fitted one, at most the setting ``lr``."""

        def loss(batch: Any) -> Tensor:
            return self._loss(*batch)[0]

        def predict(batch: Any) -> Tensor:
            views = self._views(batch[0][1])
            return torch.stack([self._outputs(view)[0].float().softmax(1) for view in views])

        self._train_mode()
        batches = [*islice(zip(*self.loaders, strict=False), PAIRS + 1)]
        fitted = self.preparation.fit_rate(step_change, batches, self._parameters(), self.method, loss, predict)
        assert self.options.lr is not None
        rate = min(fitted, self.options.lr)
        self._set_rate(rate)
        return rate

    def _augmented(self, images: Batch) -> Any:
        moved = to_device(images, self.device)
        return moved if self.augment is None else self.augment(moved)

    def _views(self, images: Any) -> list[Any]:
        return [images] if self.second_view is None else [images, self.second_view(images)]

    def _train_mode(self) -> None:
        self.batch_norm.set_mode(self.network, self.options.dropout)

    def _loss(self, batch: tuple[Tensor, Batch], labelled: tuple[Batch, Tensor] | None = None) -> Step:
        indices, images = batch
        count = len(indices)
        views = self._views(self._augmented(images))
        inputs = views if labelled is None else [*views, labelled[0]]
        logits, features = self._outputs(concatenated(inputs))
        second_view = None
        if len(views) == 2:
            second_view = (logits[count : 2 * count], features[count : 2 * count])
        loss = self.method(indices, logits[:count], features[:count], second_view)
        if labelled is not None:
            labels = labelled[1].to(logits.device)
            loss = loss + cross_entropy(logits[len(views) * count :].float(), labels)
        return loss, logits[:count], self.method.diagnostics()

    # Scores.

    def _score(self, metrics: dict[str, Any]) -> Outputs | None:
        """Score an epoch. If it has collapsed, training ends, and the model before it is scored in its place."""
        predictions = self._score_model(metrics)
        if metrics["epoch"] == 0 or not self._detects_collapse():
            return predictions
        after = Diversity(metrics["effective_classes"], metrics["infomax"])
        before = self._diversity_before_training()
        if not has_collapsed(after, before):
            return predictions
        self.network.load_state_dict(self.before_epoch)
        self.last_epoch = metrics["epoch"]
        metrics |= {"effective_classes_collapsed": after.effective_classes, "infomax_collapsed": after.infomax}
        self.progress.line(
            f"epoch {self.last_epoch} collapsed: the effective number of predicted classes fell from "
            f"{before.effective_classes:.1f} before training to {after.effective_classes:.1f}, InfoMax from "
            f"{before.infomax:.2f} to {after.infomax:.2f}. Training ends with the model before this epoch; a smaller "
            "`lr` may prevent it"
        )
        return self._score_model(metrics)

    def _continue_from(self, metrics: list[dict[str, Any]]) -> None:
        super()._continue_from(metrics)
        if "infomax_collapsed" in metrics[-1]:
            self.last_epoch = metrics[-1]["epoch"]

    def _detects_collapse(self) -> bool:
        """Whether a fall of the predictions' diversity is that of the weights.

        It may be that of a moving average of batch-norm statistics, which lags behind them."""
        return self.method.trains and (self.options.batch_norm != "target" or not has_statistics(self.network))

    def _diversity_before_training(self) -> Diversity:
        """Of the model with adapted statistics, or of the source model if no statistics are mixed."""
        if not self.preparation.mixes_statistics:
            return Diversity(self.metrics[0]["effective_classes"], self.metrics[0]["infomax"])
        return Diversity(self.metrics[1]["effective_classes_before"], self.metrics[1]["infomax_before"])

    def _score_model(self, metrics: dict[str, Any]) -> Outputs | None:
        """Score the model without labels, and for the record by the labels of the target, where it has some. Returns
        the predictions on the whole target, if there are any."""
        epoch = metrics["epoch"]
        self.passes.forget()
        if self._is_recorded(epoch) or self._next_epoch_needs_all(epoch):
            self._require_finite(self.passes.target().logits, epoch)
        scored = self.passes.scored()
        self._require_finite(scored.logits, epoch)
        metrics |= selection.score_all(scored.logits.softmax(1))
        metrics["effective_classes"] = Diversity.of(scored.logits).effective_classes
        labels = scored.logits.argmax(1).cpu()
        if epoch == 0:
            metrics |= self._scores_of_the_source_model(scored, labels)
            self._ask_the_teacher()
        first_labels = self.first_predictions.setdefault("labels", labels)
        metrics["changed"] = float((labels != first_labels).float().mean())
        if self._keeps_predictions():
            self._require_finite(self.passes.target().logits, epoch)
        if self.passes.target_is_predicted():
            metrics |= self._recorded()
        if self.record is not None and epoch == self.last_epoch:
            self._record_the_selected_epoch()
        return self.passes.target() if self.passes.target_is_predicted() else None

    def _is_recorded(self, epoch: int) -> bool:
        return self.record is not None and (epoch == self.last_epoch or epoch % self.options.record_every == 0)

    def _next_epoch_needs_all(self, epoch: int) -> bool:
        """Whether the next epoch begins with a pass of the current model over all images."""
        if not self.method.needs_pass(epoch) or not self.method.needs_all(epoch):
            return False
        model_changes_first = epoch == 0 and self.preparation.mixes_statistics
        return not self.images.num_held_out and not model_changes_first

    def _scores_of_the_source_model(self, scored: Outputs, labels: Tensor) -> dict[str, Any]:
        if are_probabilities(scored.logits):
            self.progress.line(PROBABILITIES)
        scores = indicators.indicators(labels, self.network.num_classes, scored.features.cpu(), self.source_statistics)
        return scores | scores_under_dropout(scored, self.network.head)

    def _ask_the_teacher(self) -> None:
        if self.teacher is None:
            return

        def predict(model: nn.Module, loader: ImageLoader, view: View | None) -> Outputs:
            return self._predict(loader, 0, view, model)

        self.teacher.predict(predict)

    def _recorded(self) -> dict[str, Any]:
        """What labels add to the record, of the predictions on the target."""
        if self.record is None:
            return {}
        recorded = self.record(self.passes.target())
        if self.passes.mirrors:
            recorded["accuracy_one_view"] = self.record(self.passes.target_by_one_view())["accuracy"]
        return recorded

    def _record_the_selected_epoch(self) -> None:
        """Add the accuracy of the selected epoch, if it was not scheduled to be recorded."""
        selected = self.metrics[self._selected_epoch()]
        if "accuracy" in selected:
            return
        last = copy_to_cpu(self.network.state_dict())
        passes = self.passes
        self.passes = Passes(self.images, self._predict_now, passes.mirrors)
        self._load_best()
        selected |= self._recorded()
        self.network.load_state_dict(last)
        self.passes = passes

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
        votes = self.method.votes(torch.tensor(self.images.shard.padded_positions))
        return None if votes is None else self.images.rows_of_the_target(votes)

    def _keeps_predictions(self) -> bool:
        return self.options.save_predictions and self._is_best()

    def _is_best(self) -> bool:
        epoch = self.metrics[-1]["epoch"]
        return bool(epoch > 0 and self._selected_epoch() == epoch)

    def _selected_epoch(self) -> int:
        return 1 + selection.chosen(self.metrics[1:], self.options.criterion)
