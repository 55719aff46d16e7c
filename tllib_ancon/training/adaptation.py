"""The adaptation loop: a source model, unlabelled images of the target, a method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from tllib_ancon import methods, selection
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.sampling import EpochSampler, hold_out
from tllib_ancon.data.worker_pool import WorkerPool
from tllib_ancon.errors import UserError
from tllib_ancon.models.batch_norm import estimate_statistics, freeze_statistics, has_statistics, mix_statistics
from tllib_ancon.models.classifier import Classifier, adaptation_mode
from tllib_ancon.models.parameters import choose_adapted_parameters
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.processes import Shard
from tllib_ancon.training.caution import LastEpochs, Pull, require_training
from tllib_ancon.training.dropout_scores import scores_under_dropout
from tllib_ancon.training.interruption import Interruption
from tllib_ancon.training.optimization import create_sgd, relative_decay, require_batch_statistics
from tllib_ancon.training.passes import RECORDED, Predictions, Record, evaluation_loader, predict_domain
from tllib_ancon.training.precision import advance, create_accelerator, lay_out, prepare, synchronize_batch_norm
from tllib_ancon.training.progress import Meters, Progress, epoch_summary
from tllib_ancon.training.reproducibility import separate_noise
from tllib_ancon.training.run_directory import BEST, Run
from tllib_ancon.training.snapshot import Stateful, copy_to_cpu, require_numbers, restore_snapshot, take_snapshot

Keep = Callable[[Predictions, Tensor | None], None]
"""Keeps a model's predictions on the whole target, and f̄ of its images (N, K) where a part of the method counts votes:
zeros for an image that was held out. It is called for each epoch that is the best so far."""

KeepLogits = Callable[[int, Predictions], None]
"""Keeps an epoch's predictions on the whole target."""


class Adaptation:
    """One run of adaptation, in any number of processes.

    Process r of W visits every W-th adapted image, from the r-th on, in an order of its own, and keeps the votes and
    averages of these alone. What a batch decides, δ for one, is decided by the batches of all processes together; the
    memories of NRC and AaD hold all images in each process; predictions on a domain are divided and put together.

    Args:
        model: the source model, changed in place
        target: images of the target domain; labels, if it has any, are removed here
        options: how to adapt
        run: where configuration, metrics and checkpoints go; already begun
        train_transform, evaluation_transform: PIL image -> tensor
        record: scores the predictions on the whole target for the record, where labels exist; of the start, of every
            ``options.record_every``-th epoch, of the selected and of the last one
        keep: keeps predictions and votes of the selected epoch
        keep_logits: keeps the predictions of every epoch, the start's too
        progress: what the person sees
        follow: is given the metrics of each epoch

    Raises:
        UserError: fewer images than one batch; an unknown method or criterion; logits or a loss that are not finite
        Interrupted: SIGTERM or SIGINT came; the same run continues after the last complete epoch
    """

    def __init__(
        self,
        model: Classifier,
        target: Domain,
        options: AdaptConfig,
        run: Run,
        train_transform: Callable[[Any], Any],
        evaluation_transform: Callable[[Any], Any],
        record: Record | None = None,
        keep: Keep | None = None,
        keep_logits: KeepLogits | None = None,
        progress: Progress | None = None,
        follow: Callable[[Mapping[str, Any]], None] | None = None,
    ):
        self.options = options
        self.follow = follow
        self.run = run
        self.record = record
        self.keep = keep
        self.keep_logits = keep_logits
        self.progress = progress or Progress()
        self.accelerator = create_accelerator(options.mixed_precision)
        held_out_share = options.hold_out if selection.holds_out(options.criterion) else 0.0

        if model.num_classes < 2:
            raise UserError(f"domain {target.name} has one class: every image is of it, and there is nothing to adapt")
        target = target.without_labels()
        self.adapted_indices, held_out_indices = hold_out(len(target), held_out_share, options.seed)
        adapted, held_out = target.subset(self.adapted_indices), target.subset(held_out_indices)
        self.num_held_out = len(held_out)
        held_out = held_out if len(held_out) else adapted
        self.first_labels = FirstLabels(len(held_out))
        if len(held_out) < selection.fewest_samples(options.criterion):
            raise UserError(f"`criterion={options.criterion}` needs more than the one image that is held out")
        if selection.needs_dropout(options.criterion) and model.head is None:
            raise UserError(
                f"`criterion={options.criterion}` drops features before the head, and this network has none; name "
                "another"
            )
        self.shard = Shard.of_this_process(len(adapted))
        self._make_loaders(target, adapted, held_out, train_transform, evaluation_transform)

        batches = options.epochs * len(self.train_loader)
        self.method = methods.create(
            options.method,
            num_samples=len(adapted),
            num_classes=model.num_classes,
            feature_dim=model.features_dim,
            total_steps=batches,
            head=model.head,
            shard=self.shard,
            **options.options,
        )
        if not self.method.trains:
            require_training(options)
        require_batch_statistics(model, options.batch_size)
        choose_adapted_parameters(model, options.adapted)
        if options.sync_batch_norm:
            model = cast(Classifier, synchronize_batch_norm(model, self.accelerator.device))
        lay_out(model, options)
        mixes = options.batch_norm == "mixed"
        self.restore_batch_norm = mix_statistics(model, options.batch_norm_prior) if mixes else lambda: None
        groups = model.get_parameters(options.lr)
        optimizer = create_sgd(groups, options.momentum, options.weight_decay, options.fused)
        steps = batches // options.accumulation_steps
        self.schedule = relative_decay(optimizer, options.lr_gamma, options.lr_decay, steps, options.warmup_steps)
        self.model, self.optimizer = prepare(self.accelerator, model, optimizer)
        self.network: Classifier = self.accelerator.unwrap_model(self.model)
        self.method.to(self.accelerator.device)
        self.pull = Pull(self.network.parameters(), options.pull)
        self.last_epochs = LastEpochs(self.network, options.epochs, options.average_last)
        self.last_epoch = options.epochs + (options.average_last > 0)
        self.metrics: list[dict[str, Any]] = []
        self.interruption = Interruption()
        separate_noise(options.seed)

    def __call__(self) -> dict[str, Any]:
        """Adapt, or finish the adaptation that was cut off in this run directory; returns ``result.json``."""
        with closing(self.run):
            with self.interruption:
                for _ in self.epochs():
                    pass
                self.run.wait()
            result = self._result()
            self.run.finish(result)
        return result

    @property
    def scores(self) -> list[str]:
        """What is shown or compared of the start, the selected and the last model."""
        criterion = self.options.criterion
        return [*[criterion] * (criterion in selection.CRITERIA), *RECORDED * (self.record is not None)]

    def epochs(self) -> Iterator[dict[str, Any]]:
        """Score the start model and adapt, an epoch each time the next metrics are asked for; a run that was cut off
        goes on after its last complete epoch."""
        if not self._resume():
            yield self._finish_epoch({"epoch": 0})
        for epoch in range(len(self.metrics), self.options.epochs + 1):
            numbers = self._train_epoch(epoch)
            self.last_epochs.add(epoch)
            yield self._finish_epoch({"epoch": epoch, **numbers})
        if len(self.metrics) <= self.last_epoch:
            self._take_mean()
            yield self._finish_epoch({"epoch": self.last_epoch, "averaged": self.options.average_last})

    def _make_loaders(
        self, target: Domain, adapted: Domain, held_out: Domain, train_transform: Any, evaluation_transform: Any
    ) -> None:
        options = self.options
        length = images_of_an_epoch(target.name, self.shard, options)
        self.sampler = EpochSampler(self.shard.positions, len(adapted), options.seed, length, rank=self.shard.rank)
        images = UnlabelledImages(adapted, train_transform, options.seed)
        workers = WorkerPool(options.workers)
        self.train_loader = ImageLoader(images, options.batch_size, workers, self.sampler, drop_last=True)
        evaluation = (evaluation_transform, options.batch_size, workers)
        self.start_loader = evaluation_loader(adapted, *evaluation)
        self.held_out_loader = evaluation_loader(held_out, *evaluation)
        self.target_loader = evaluation_loader(target, *evaluation)

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        if not self.method.trains:
            return self._estimate_statistics(epoch)
        if self.method.needs_pass(epoch - 1):
            self.method.initialize(epoch - 1, *self._predict(self.start_loader, epoch))
        adaptation_mode(self.network, self.options.dropout)
        if self.options.batch_norm == "source":
            freeze_statistics(self.network)
        self.sampler.epoch = epoch - 1
        meters = Meters(self.accelerator.device)
        steps = len(self.train_loader)
        with self.progress.bar(f"epoch {epoch}/{self.options.epochs}", steps) as bar:
            batches = self.interruption.watch(self.train_loader, epoch)
            for step, (indices, images) in enumerate(batches, start=1):
                loss, logits = self._step(indices, images, step % self.options.accumulation_steps == 0)
                meters.add(loss, logits, self.method.diagnostics())
                bar.update()
                if step % self.options.print_freq == 0 or step == steps:
                    self.progress.step(bar, step, meters.read(len(images)))
                    self._require_finite(meters, epoch)
        return meters.read(self.options.batch_size)

    def _estimate_statistics(self, epoch: int) -> dict[str, float]:
        """Give batch-norm the statistics of the images to adapt on, without augmentation; a single image that is left
        for the last batch has none."""
        batches = (images for _, images in self.interruption.watch(self.start_loader, epoch) if len(images) > 1)
        device = self.accelerator.device
        with self.accelerator.autocast():
            estimate_statistics(self.network, (images.to(device, non_blocking=True) for images in batches))
        return {}

    def _take_mean(self) -> None:
        """Go on with the mean of the last epochs' weights, and the statistics that batch-norm has with them."""
        self.last_epochs.take()
        if self.options.batch_norm != "source" and has_statistics(self.network):
            self._estimate_statistics(self.last_epoch)

    def _step(self, indices: Tensor, images: Tensor, complete: bool = True) -> tuple[Tensor, Tensor]:
        """Learn from a batch; the parameters change once the step of the optimiser is complete. (Accelerate's own
        accumulation is one for all that a process trains.)"""
        batches = self.options.accumulation_steps
        with nullcontext() if complete else self.accelerator.no_sync(self.model):
            with self.accelerator.autocast():
                logits, features = self.model(images.to(self.accelerator.device, non_blocking=True))
            loss = self.method(indices, logits, features)
            self.accelerator.backward(loss / batches if batches > 1 else loss)
        if complete:
            self.optimizer.step()
            self.pull()
            self.optimizer.zero_grad()
            advance(self.schedule, self.accelerator)
        return loss.detach(), logits.detach()

    def _require_finite(self, meters: Meters, epoch: int) -> None:
        step = meters.first_bad_step()
        if step:
            raise UserError(
                f"logits or loss are not finite at epoch {epoch}, step {step}; {self.run.last_good(epoch - 1)}A "
                "smaller `lr` usually helps"
            )

    def _finish_epoch(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Score the model, keep it if it is the best so far, and write all down."""
        held_out = self._predict(self.held_out_loader, metrics["epoch"])
        if not held_out.logits.isfinite().all():
            raise UserError(
                f"the model's logits on the hold-out are not finite after epoch {metrics['epoch']}; "
                f"{self.run.last_good(metrics['epoch'] - 1)}A smaller `lr` usually helps"
                if metrics["epoch"]
                else "the start model's logits on the hold-out are not finite: its weights are damaged"
            )
        metrics |= selection.score_all(held_out.logits.softmax(1)) | scores_under_dropout(held_out, self.network.head)
        metrics["changed"] = self.first_labels.changed(held_out.logits)
        self.metrics.append(metrics)
        self._save(metrics["epoch"], self._record(metrics["epoch"]))
        if self.follow is not None:
            self.follow(metrics)
        self.progress.line(epoch_summary(metrics, self.last_epoch))
        return metrics

    def _record(self, epoch: int) -> Predictions | None:
        """Score an epoch for the record, if its turn has come or its predictions are kept anyway; returns these."""
        scored = self._is_recorded(epoch) or self._keeps_predictions(epoch)
        predictions = self._predict(self.target_loader, epoch) if scored else None
        if self.record is not None and predictions is not None:
            self.metrics[epoch] |= self.record(predictions)
        if epoch == self.last_epoch:
            self._record_selected()
        return predictions

    def _is_recorded(self, epoch: int) -> bool:
        """Whether its turn has come."""
        return self.record is not None and (epoch == self.last_epoch or epoch % self.options.record_every == 0)

    def _record_selected(self) -> None:
        """Score the selected epoch for the record, if its turn did not come: what the start has, it has then."""
        selected = self.metrics[self._selected_epoch()]
        if self.record is None or self.metrics[0].keys() <= selected.keys():
            return
        last = copy_to_cpu(self.network.state_dict())
        self.network.load_state_dict(self.run.load(BEST))
        selected |= self.record(self._predict(self.target_loader, self.last_epoch))
        self.network.load_state_dict(last)

    def _keeps_predictions(self, epoch: int) -> bool:
        return self.keep_logits is not None or (self.keep is not None and self._is_selected(epoch))

    def _predict(self, loader: ImageLoader, epoch: int) -> Predictions:
        with self.accelerator.autocast():
            batches = self.interruption.watch(loader, epoch)
            return predict_domain(self.network, batches, self.accelerator.device, loader.num_images)

    def _save(self, epoch: int, predictions: Predictions | None) -> None:
        self.run.save_epoch(take_snapshot(self._parts()), self.metrics, self._is_selected(epoch))
        self._keep(epoch, predictions)

    def _keep(self, epoch: int, predictions: Predictions | None = None) -> None:
        """Keep what was asked for beside the state; done again when the run continues after this epoch."""
        if self.options.save_epochs:
            self.run.keep_epoch(epoch)
        if self._keeps_predictions(epoch):
            predictions = predictions or self._predict(self.target_loader, epoch)
            if self.keep_logits is not None:
                self.run.then(partial(self.keep_logits, epoch, predictions))
            if self.keep is not None and self._is_selected(epoch):
                self.run.then(partial(self.keep, predictions, self._votes(len(predictions.indices))))

    def _resume(self) -> bool:
        kept = self.run.resume()
        if kept is None:
            return False
        snapshot, self.metrics = kept
        scores = [self.options.criterion] * (self.options.criterion in selection.CRITERIA)
        require_numbers(self.metrics, scores, first=0)
        for epoch, line in enumerate(self.metrics):
            require_numbers([line], RECORDED * self._is_recorded(epoch), first=epoch)
        restore_snapshot(self._parts(), snapshot)
        self._keep(self.metrics[-1]["epoch"])
        self.progress.line(f"continuing {self.run.path} after epoch {self.metrics[-1]['epoch']}")
        return True

    def _parts(self) -> dict[str, Stateful]:
        """Everything that an epoch changes."""
        parts: dict[str, Stateful] = {
            "model": self.network,
            "method": self.method,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "first_labels": self.first_labels,
        }
        if self.last_epochs.mean is not None:
            parts["last_epochs"] = self.last_epochs
        return parts if self.accelerator.scaler is None else {**parts, "scaler": self.accelerator.scaler}

    def _votes(self, num_images: int) -> Tensor | None:
        """f̄ of every image of the target, (N, K); zeros for an image that was held out."""
        own = self.method.votes(torch.tensor(self.shard.padded_positions))
        if own is None:
            return None
        votes = torch.zeros(num_images, self.network.num_classes)
        votes[self.adapted_indices] = processes.interleave(own)[: len(self.adapted_indices)].cpu()
        return votes

    def _is_selected(self, epoch: int) -> bool:
        return epoch > 0 and self._selected_epoch() == epoch

    def _selected_epoch(self) -> int:
        adapted = self.metrics[1:]
        return 1 + selection.chosen(adapted, self.options.criterion)

    def _result(self) -> dict[str, Any]:
        selected = self._selected_epoch()
        return {
            "method": self.options.method,
            "criterion": self.options.criterion,
            "held_out": self.num_held_out,
            "start": self.metrics[0],
            "selected_epoch": selected,
            "selected": self.metrics[selected],
            "last": self.metrics[-1],
        }


class FirstLabels:
    """The start model's labels of the hold-out, and how many of them a later model changes.

    Args:
        num_samples: images of the hold-out
    """

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples
        self.labels = torch.empty(0, dtype=torch.int64)

    def changed(self, logits: Tensor) -> float:
        """The share in [0, 1] of images whose label is not the start model's; 0 for the first logits, (N, K)."""
        labels = logits.argmax(1).cpu()
        if not len(self.labels):
            self.labels = labels
        return float((labels != self.labels).float().mean())

    def state_dict(self) -> dict[str, Any]:
        return {"labels": self.labels}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        labels = state["labels"]
        if labels.shape not in ((0,), (self.num_samples,)):
            raise ValueError(f"labels of shape {tuple(labels.shape)} for {self.num_samples} images")
        self.labels = labels


def images_of_an_epoch(domain: str, shard: Shard, options: AdaptConfig) -> int:
    """That each process visits: as many in all, and whole steps of the optimiser.

    Raises:
        UserError: fewer images than one step needs
    """
    a_step = options.batch_size * options.accumulation_steps
    steps = shard.num_samples // shard.world_size // a_step
    if steps == 0:
        together = f" in each of {shard.world_size} processes" * (shard.world_size > 1)
        at_once = f"{options.accumulation_steps} batches" if options.accumulation_steps > 1 else "one batch"
        raise UserError(
            f"domain {domain}: {shard.num_samples} images to adapt on are fewer than {at_once} of "
            f"{options.batch_size}{together}; pass a smaller `batch_size`"
        )
    return steps * a_step
