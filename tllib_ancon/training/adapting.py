"""The adaptation in the training loop: its steps, its epochs, the selection of an epoch, and its files."""

import copy
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.batches import Batch, concatenated, to_device
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, LabelledImages, UnlabelledImages, Workers, hold_out
from tllib_ancon.data.transforms import mirror
from tllib_ancon.measures import indicators as assessing
from tllib_ancon.measures import selection
from tllib_ancon.measures.indicators import SourceStatistics
from tllib_ancon.models.batch_norm import BatchNormPolicy, estimated_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier, NetworkClassifier, choose_adapted_parameters
from tllib_ancon.models.copies import without_graphs
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.self_training.checks import PROBABILITIES, are_probabilities
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training.checkpointing import copy_to_cpu
from tllib_ancon.training.collapse import Diversity, has_collapsed
from tllib_ancon.training.inference import Outputs, evaluation_loader, recorder, scores_under_dropout
from tllib_ancon.training.loop import Step, TrainingLoop, require_batch_statistics, training_loader
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.rate import PAIRS, fitted_rate
from tllib_ancon.training.resolve import USUAL_BATCH, Transforms
from tllib_ancon.training.run import MemoryRun
from tllib_ancon.training.teaching import Labels


class TargetImages(NamedTuple):
    """The target, divided into images to adapt on and images held out; the loaders have this process's share of
    them."""

    adapted_indices: Tensor  # positions in the target, of all processes
    shard: Shard  # which of these this process visits
    num_held_out: int  # images that select the epoch; with none those adapted on do
    training: ImageLoader  # what the steps see; the others are for evaluation
    adapted: ImageLoader
    held_out: ImageLoader
    every: ImageLoader


def divide(target: Domain, config: AdaptConfig, transforms: Transforms) -> TargetImages:
    """Divide the target into images to adapt on and a hold-out. Each loader yields this process's part."""
    adapted_indices, held_out_indices = hold_out(len(target), config.held_out_share, config.seed)
    adapted, held_out = target.subset(adapted_indices), target.subset(held_out_indices)
    shard = Shard.of_this_process(len(adapted))
    batch_size, workers = config.batch_size, Workers(config.workers)
    assert batch_size is not None
    images = UnlabelledImages(adapted, transforms.train, config.seed)
    training = training_loader(images, batch_size, workers, a_step=config.accumulation_steps)
    evaluated = (adapted, held_out, target)
    loaders = (evaluation_loader(domain, transforms.evaluation, batch_size, workers) for domain in evaluated)
    return TargetImages(adapted_indices, shard, len(held_out), training, *loaders)


FEW = 16
"""Images of a target below which a line warns."""

SAMPLE = 1024
"""Images at most, from which the mixing weight, the class prior and label-free scores are estimated."""

STATISTICS_SAMPLE = 512
"""Images at most, from which batch-norm statistics are estimated after an epoch."""

AGREEMENT_SAMPLE = 256
"""Images at most of that sample, on which the source model is compared with the model of half-mixed statistics."""


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

    def __init__(
        self,
        model: Classifier,
        target: Domain,
        options: AdaptConfig,
        run: MemoryRun,
        transforms: Transforms,
        progress: Progress,
        taught: Labels | None = None,
        source: SourceStatistics | None = None,
    ):
        flags = [parameter.requires_grad for parameter in model.parameters()]
        self.second_view = transforms.second_view if options.views == 2 else None
        self.images = images = divide(target.without_labels(), options, transforms)
        steps = options.epochs * len(images.training)
        self.method = methods.create(
            options.method,
            num_samples=images.shard.num_samples,
            num_classes=model.num_classes,
            feature_dim=model.features_dim,
            total_steps=steps,
            head=model.head,
            shard=images.shard,
            **options.options,
        )
        if self.method.ensemble is not None:
            self.method.ensemble.compared = True  # epoch 0 compares all logits
        self.augment = transforms.augment
        if self.augment is None and target.holds_tensors and isinstance(transforms.train, nn.Identity):
            progress.line("no augmentation is used, and AnCon needs one; pass `augment`, a function of a batch")
        if len(target) < FEW:
            progress.line(f"only {len(target)} of at least {FEW} images: adapting may reduce accuracy; add images")
        most = SAMPLE if self.method.trains and not options.held_out_share else len(target)
        adapted, batch_size = images.adapted.dataset.domain, max(images.training.batch_size, USUAL_BATCH)
        self.sampled = torch.randperm(len(adapted), generator=torch.Generator().manual_seed(options.seed))[:most]
        self.sample, self.few = (
            evaluation_loader(adapted.subset(chosen), transforms.evaluation, batch_size, images.training.workers)
            for chosen in (self.sampled, self.sampled[:AGREEMENT_SAMPLE])
        )
        _refuse_without_effect(options, model, self.method.trains)
        require_batch_statistics(model, images.training.batch_size)
        if self.method.trains:
            assert options.adapted is not None
            thawed = choose_adapted_parameters(model, options.adapted)
            if thawed:
                progress.line(f"`adapted={options.adapted}` thaws {thawed} of {flags.count(False)} frozen parameters")
            elif not all(flags):
                learning = sum(parameter.requires_grad for parameter in model.parameters())
                progress.line(f"what the model has frozen stays so: {learning} of {len(flags)} parameters learn")
        if options.adapted == "all-but-head" and model.head is None:
            progress.line("the model ends in no Linear layer that could be its head; all of it learns")
        if options.sync_batch_norm:
            if not torch.cuda.is_available():
                raise UserError(
                    "`sync_batch_norm` needs GPUs, and this machine has none; leave it out: each process "
                    "then normalises by its own batch"
                )
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        assert options.lr is not None
        groups = model.get_parameters(options.lr) if self.method.trains else []
        self.first = Kept()
        visited = len(Shard.of_this_process(len(self.sampled)))
        self.batch_norm = BatchNormPolicy(options.batch_norm, options.batch_norm_share, visited)
        self.passed: Outputs | None = None  # over the images to adapt on, by the weights with which an epoch starts
        loaders, updates = [images.training], steps // options.accumulation_steps
        self.num_taught = 0 if taught is None else int((taught >= 0).sum())
        if taught is not None:
            loaders.append(_teaching(target, taught, options, transforms, images.training))
            progress.line(f"labels of {self.num_taught} images of the target teach")
        state: dict[str, Any] = {"method": self.method, "first_labels": self.first}
        groups = groups or [{"params": []}]  # where only statistics change
        super().__init__(options, run, progress, model, loaders, groups, updates, options.warmup_steps, state)
        self.accumulation_steps = options.accumulation_steps
        self.target, self.record, self.source = target, recorder(target), source
        self.method.to(self.device)

    def adapted(self) -> nn.Module:
        """The network with the weights of the selected epoch, in evaluation mode; in PyTorch's own layout, so that it
        computes what it computes when it is loaded again. It has no hook, patched method or graph of the training."""
        self._load_best()
        _restore_methods(self.network)
        adapted = self.network.release() if isinstance(self.network, NetworkClassifier) else self.network
        without_graphs(adapted)
        return adapted.eval().to(memory_format=torch.contiguous_format)

    def result(self) -> dict[str, Any]:
        criterion, epoch = self.options.criterion, self._selected_epoch()
        start, selected = self.metrics[0], self.metrics[epoch]
        scores = {**self.metrics[1], **start}
        return {
            "method": self.options.method,
            "criterion": criterion,
            "held_out": self.images.num_held_out,
            "start": start,
            "selected_epoch": epoch,
            "selected": selected,
            "better_than_start": selection.better_than_start(start, selected, criterion),
            "last": self.metrics[-1],
            **({"taught": self.num_taught} if self.num_taught else {}),
            "assessment": {
                "indicators": {name: scores[name] for name in assessing.INDICATORS if name in scores},
                "labels_needed": assessing.labels_needed(0.5, len(self.target)),
            },
        }

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        prepared, passed = self._prepare() if epoch == 1 else ({}, self.passed)
        self.passed = None  # it is large
        if not self.method.trains:
            return prepared
        if self.method.needs_pass(epoch - 1):
            if passed is None:
                needs_all = self.method.needs_all(epoch - 1)
                passed = self._predict(self.images.adapted, epoch) if needs_all else self._predict_sample(epoch)
            self.method.begin_epoch(epoch - 1, *passed)
        if epoch == 1 and self.options.step_change is not None:
            prepared["lr"] = self._fit_rate(self.options.step_change)
        self.before_epoch = copy_to_cpu(self.network.state_dict())
        trained = super()._train_epoch(epoch)
        self._estimate_statistics(epoch)
        return prepared | trained

    def _estimate_statistics(self, epoch: int) -> None:
        """Estimate the running statistics of mixed batch-norm from training images.

        The moving average that training leaves lags behind weights that change fast. The images are augmented as in
        training, because networks learn to predict plain images by the statistics of augmented ones. Training itself
        reads no running statistics. See ``benchmarks/results/harm.md``.
        """
        if not self._mixes_statistics():
            return
        training = self.images.training
        count = -(-STATISTICS_SAMPLE // (training.batch_size * processes.world_size()))
        with estimated_statistics(self.network), torch.inference_mode(), self.accelerator.autocast():
            for _, images in self.interruption.watch(islice(training, count), epoch):
                self.network.predict(self._augmented(images))

    def _fit_rate(self, step_change: float) -> float:
        """Set the learning rate of all parameters to that of :func:`fitted_rate`, at most the setting ``lr``."""
        self._train_mode()
        state, method = (copy.deepcopy(part.state_dict()) for part in (self.network, self.method))
        first = [*islice(zip(*self.loaders, strict=False), PAIRS + 1)]
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]

        rate = fitted_rate(
            step_change,
            first,
            parameters,
            lambda batch: self._loss(*batch)[0],
            lambda batch: torch.stack([self._outputs(view)[0].float().softmax(1) for view in self._views(batch[0][1])]),
        )
        self.network.load_state_dict(state)
        self.method.load_state_dict(method)
        assert self.options.lr is not None
        rate = min(rate, self.options.lr)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] = rate
        self.schedule.base_lrs = [rate] * len(self.optimizer.param_groups)
        return rate

    def _prepare(self) -> tuple[dict[str, float], Outputs | None]:
        """Set batch-norm up; returns numbers for the record, and the predictions that the method is initialised with,
        where there are any."""
        if not self.method.trains and self.options.batch_norm == "target":
            with self.batch_norm.estimated(self.network):
                self._predict(self.sample, 1)
        if not self._mixes_statistics():
            return {}, self.passed
        passes: list[Outputs] = []

        def predict_sample() -> Tensor:
            passes[:] = [self._predict_sample(1)]
            return passes[0].logits

        def predict_few() -> Tensor:
            return self._predict(self.few, 1).logits

        labels = None if self.images.num_held_out else self.first["labels"]
        numbers = self.batch_norm.prepare(self.network, predict_sample, predict_few, labels)
        held_out = self.images.num_held_out
        scored = self._predict(self.images.held_out, 1) if held_out else passes[0]
        before = Diversity.of(scored.logits)
        numbers |= {"effective_classes_before": before.effective_classes, "infomax_before": before.infomax}
        return numbers, None if self.method.needs_all(0) else passes[0]

    def _mixes_statistics(self) -> bool:
        return self.options.batch_norm == "mixed" and has_statistics(self.network)

    def _augmented(self, images: Batch) -> Any:
        moved = to_device(images, self.device)
        return moved if self.augment is None else self.augment(moved)

    def _views(self, images: Any) -> list[Any]:
        return [images] if self.second_view is None else [images, self.second_view(images)]

    def _train_mode(self) -> None:
        self.batch_norm.set_mode(self.network, self.options.dropout)

    def _loss(self, batch: tuple[Tensor, Batch], labelled: tuple[Batch, Tensor] | None = None) -> Step:
        (indices, images), count = batch, len(batch[0])
        views = self._views(self._augmented(images))
        logits, features = self._outputs(concatenated([*views, *([] if labelled is None else labelled[:1])]))
        rows = [slice(start, start + count) for start in range(0, len(views) * count, count)]
        others = [(logits[view], features[view]) for view in rows[1:]]
        loss = self.method(indices, logits[rows[0]], features[rows[0]], *others)
        if labelled is not None:
            loss = loss + cross_entropy(logits[len(views) * count :].float(), labelled[1].to(logits.device))
        return loss, logits[:count], self.method.diagnostics()

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
        if not self._mixes_statistics():
            return Diversity(self.metrics[0]["effective_classes"], self.metrics[0]["infomax"])
        return Diversity(self.metrics[1]["effective_classes_before"], self.metrics[1]["infomax_before"])

    def _score_model(self, metrics: dict[str, Any]) -> Outputs | None:
        """Score the hold-out, or the sample if nothing is held out, by one view; and for the record the whole target if
        it has labels. Returns the predictions on the whole target, if there are any."""
        epoch, predictions = metrics["epoch"], None
        recorded: dict[str, Any] = {}
        is_recorded = self.record is not None and (epoch == self.last_epoch or epoch % self.options.record_every == 0)
        changes_first = epoch == 0 and self._mixes_statistics()
        pass_is_used = self.method.needs_pass(epoch) and not self.images.num_held_out and not changes_first
        if is_recorded or (pass_is_used and self.method.needs_all(epoch)):
            predictions, one_view, recorded = self._predict_all(epoch)
        if self.images.num_held_out:
            scored = self._predict(self.images.held_out, epoch)
        elif predictions is not None:
            scored = Outputs(*(part[self.sampled.to(part.device)] for part in one_view))
        else:
            scored = self._predict_sample(epoch)
        self.passed = (predictions or scored) if pass_is_used else None
        self._require_finite(scored.logits, epoch)
        metrics |= selection.score_all(scored.logits.softmax(1))
        metrics["effective_classes"] = Diversity.of(scored.logits).effective_classes
        labels = scored.logits.argmax(1).cpu()
        if epoch == 0:
            if are_probabilities(scored.logits):
                self.progress.line(PROBABILITIES)
            num_classes, features = self.network.num_classes, scored.features.cpu()
            metrics |= assessing.indicators(labels, num_classes, features, self.source)
            metrics |= scores_under_dropout(scored, self.network.head)
        metrics["changed"] = float((labels != self.first.setdefault("labels", labels)).float().mean())
        if predictions is None and self._keeps_predictions():
            predictions, _, recorded = self._predict_all(epoch)
        metrics |= recorded
        if self.record is not None and epoch == self.last_epoch:
            selected = self.metrics[self._selected_epoch()]
            if "accuracy" not in selected:  # its turn did not come
                last = copy_to_cpu(self.network.state_dict())
                self._load_best()
                selected |= self._predict_all(epoch)[2]
                self.network.load_state_dict(last)
        return predictions

    def _predict_sample(self, epoch: int) -> Outputs:
        """Predictions on the sample. Their indices are positions among the images to adapt on, as those of a step."""
        predictions = self._predict(self.sample, epoch)
        return predictions._replace(indices=self.sampled[predictions.indices])

    def _predict_all(self, epoch: int) -> tuple[Outputs, Outputs, dict[str, Any]]:
        """Predictions on the whole target by the run's views and by one, and what labels add to the record."""
        predictions = one_view = self._predict(self.images.every, epoch)
        if self.second_view is mirror:
            other = self._predict(self.images.every, epoch, mirror)
            predictions = one_view._replace(logits=mean_prediction(one_view.logits, other.logits))
        self._require_finite(predictions.logits, epoch)
        if self.record is None:
            return predictions, one_view, {}
        more = {} if predictions is one_view else {"accuracy_one_view": self.record(one_view)["accuracy"]}
        return predictions, one_view, self.record(predictions) | more

    def _keep(self, scored: Outputs | None = None) -> None:
        epoch = self.metrics[-1]["epoch"]
        if epoch == 0 and self.options.checkpoint is None:
            self.run.save_source()
        if not self._keeps_predictions():
            return
        predictions = scored or self._predict_all(epoch)[0]
        own = self.method.votes(torch.tensor(self.images.shard.padded_positions))
        votes = None
        if own is not None:  # f̄ of every image; zeros for one that was held out
            votes, adapted = torch.zeros(len(self.target), own.shape[1]), self.images.adapted_indices
            votes[adapted] = processes.interleave(own)[: len(adapted)].cpu()
        self.run.save_predictions(predictions, self.target, votes)

    def _keeps_predictions(self) -> bool:
        return self.options.save_predictions and self._is_best()

    def _is_best(self) -> bool:
        epoch = self.metrics[-1]["epoch"]
        return bool(epoch > 0 and self._selected_epoch() == epoch)

    def _selected_epoch(self) -> int:
        return 1 + selection.chosen(self.metrics[1:], self.options.criterion)


def _restore_methods(model: nn.Module) -> None:
    """Remove what Accelerate and ``compile`` set on an object, so that its methods are those of its class."""
    for name in ("forward", "_original_forward", "_is_accelerate_prepared", "_compiled_call_impl"):
        vars(model).pop(name, None)


def _teaching(
    target: Domain, taught: Labels, options: AdaptConfig, transforms: Transforms, training: ImageLoader
) -> ImageLoader:
    """The images whose labels teach, a quarter as many a step as the others or all, in as many steps. They are read at
    the same time as the others, so that their loader has its own workers."""
    positions = np.flatnonzero(taught >= 0)
    images = LabelledImages(replace(target.subset(positions), labels=taught[positions]), transforms.train, options.seed)
    size = max(1, min(training.batch_size // 4, len(positions) // processes.world_size()))
    return training_loader(images, size, Workers(options.workers), len(training))


def _refuse_without_effect(config: AdaptConfig, model: nn.Module, trains: bool) -> None:
    """Raise an error for settings that change nothing: of batch-norm where no layer of it keeps statistics, and of how
    weights change where nothing is trained."""
    given = ["batch_norm"] * (config.batch_norm == "source") + ["views"] * (config.views == 2)
    if given and not trains:
        raise without_effect(config, given[0])
    if (not trains or config.batch_norm == "source") and not has_statistics(model):
        name = "batch_norm" if config.batch_norm == "source" else "method"
        raise UserError(
            f"`{name}={getattr(config, name)}` is about running statistics of batch-norm, and this network has no "
            "batch-norm that keeps them; leave it out"
        )


OF_TRAINING = (
    "optimizer",
    "lr",
    "lr_gamma",
    "lr_decay",
    "momentum",
    "weight_decay",
    "fused",
    "step_change",
    "warmup_steps",
    "accumulation_steps",
    "adapted",
    "dropout",
    "teach",
)
"""Settings that a method reads only if it trains."""


def refuse_settings_of_training(config: AdaptConfig) -> None:
    """Raise an error for a setting of the user's that a method that trains nothing does not read."""
    defaults = {name: AdaptConfig.model_fields[name].default for name in OF_TRAINING}
    defaults |= methods.training_defaults(config.method)
    for name in OF_TRAINING:
        if getattr(config, name) not in (None, defaults[name]):
            raise without_effect(config, name)


def without_effect(config: AdaptConfig, name: str) -> UserError:
    return UserError(
        f"`{name}={getattr(config, name)}` has no effect with `method={config.method}`, which trains nothing; leave it "
        "out"
    )


class Kept(dict[str, Tensor]):
    """Tensors that an interrupted run needs to resume."""

    state_dict = dict.copy
    load_state_dict = dict.update
