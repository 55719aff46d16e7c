"""What training a source model has in common, whatever its loss: epochs, checkpoints, going on after a cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tllib_ancon.config import PretrainConfig
from tllib_ancon.data.images import DomainImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.sampling import EpochSampler
from tllib_ancon.errors import UserError
from tllib_ancon.self_training import processes
from tllib_ancon.self_training.processes import Shard
from tllib_ancon.training.interruption import Interruption
from tllib_ancon.training.optimization import create_sgd
from tllib_ancon.training.precision import advance, create_accelerator, lay_out, prepare
from tllib_ancon.training.progress import Meters, Progress, epoch_summary
from tllib_ancon.training.reproducibility import separate_noise
from tllib_ancon.training.run_directory import Run
from tllib_ancon.training.snapshot import Stateful, require_numbers, restore_snapshot, take_snapshot


class SourceTraining(ABC):
    """The loop. A subclass says what a step's loss is, what is scored after an epoch, and what came out.

    Args:
        model: returns logits and a second output in training mode; has TLLib's ``get_parameters(base_lr)``
        loaders: each gives a part of a step's batch; the first to end ends an epoch
        options: how to train
        run: where metrics and checkpoints go
        progress: what the person sees
        loss: a loss with a state that is kept, and perhaps parameters that learn; of many processes each computes it of
            all processes' samples
        state: more things that a run needs to go on after a cut
    """

    scores: Sequence[str]
    """What is shown or compared of each epoch."""

    def __init__(
        self,
        model: Any,
        loaders: Sequence[ImageLoader],
        options: PretrainConfig,
        run: Run,
        progress: Progress,
        loss: Any = None,
        state: Mapping[str, Stateful] | None = None,
    ):
        self.loaders = loaders
        self.options = options
        self.run = run
        self.progress = progress
        self.accelerator = create_accelerator(options.mixed_precision)
        self.device = self.accelerator.device
        self.interruption = Interruption()
        lay_out(model, options)
        groups = model.get_parameters(options.lr)
        self.apart: list[nn.Parameter] = []
        if loss is not None:
            groups = [*groups, *loss.to(self.device).get_parameters(options.lr)]
            self.apart = list(loss.parameters())
            processes.broadcast(loss.state_dict().values())
        optimizer = create_sgd(groups, options.momentum, options.weight_decay, options.fused)
        self.steps = min(len(loader) for loader in loaders)
        self.schedule = self._schedule(optimizer)
        self.model, self.optimizer = prepare(self.accelerator, model, optimizer)
        self.network = self.accelerator.unwrap_model(self.model)
        self.parts = {
            "model": self.network,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            **({} if loss is None else {"loss": loss}),
            **({} if self.accelerator.scaler is None else {"scaler": self.accelerator.scaler}),
            **(state or {}),
        }
        self.metrics: list[dict[str, Any]] = []
        separate_noise(options.seed)

    def __call__(self) -> dict[str, Any]:
        """Train, or finish the training that was cut off in this run directory; returns ``result.json``."""
        with closing(self.run):
            with self.interruption:
                self._resume()
                for epoch in range(len(self.metrics) + 1, self.options.epochs + 1):
                    self._finish_epoch({"epoch": epoch, **self._train_epoch(epoch), **self._scores(epoch)})
                self.run.wait()
            result = self._result()
            self.run.finish(result)
        return result

    @abstractmethod
    def _schedule(self, optimizer: Optimizer) -> LRScheduler:
        """The decay of the learning rate, a step at a time."""

    @abstractmethod
    def _loss(self, *batch: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """What to minimise, the logits, and what else is averaged over the epoch; a part of ``batch`` a loader.

        Raises:
            FloatingPointError: the loss refuses numbers that are not finite
        """

    @abstractmethod
    def _scores(self, epoch: int) -> dict[str, Any]:
        """What is said of the model after an epoch."""

    @abstractmethod
    def _is_best(self) -> bool:
        """Whether the last epoch's model is the one to keep as ``best.pth``."""

    @abstractmethod
    def _result(self) -> dict[str, Any]:
        """``result.json``, with the checkpoint to start an adaptation from as ``checkpoint``."""

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        for loader in self.loaders:
            assert isinstance(loader.sampler, EpochSampler)
            loader.sampler.epoch = epoch - 1
        self.model.train()
        meters = Meters(self.device)
        with self.progress.bar(f"source epoch {epoch}/{self.options.epochs}", self.steps) as bar:
            batches = self.interruption.watch(zip(*self.loaders, strict=False), epoch)
            for step, batch in enumerate(batches, start=1):
                try:
                    meters.add(*self._step(batch))
                except FloatingPointError:
                    raise self._divergence(epoch, step) from None
                bar.update()
                if step % self.options.print_freq == 0 or step == self.steps:
                    self.progress.step(bar, step, meters.read(self.options.batch_size * len(self.loaders)))
                    self._require_finite(meters, epoch)
        return meters.read(self.options.batch_size * len(self.loaders))

    def _step(self, batch: tuple[Any, ...]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        loss, logits, diagnostics = self._loss(*batch)
        self.accelerator.backward(loss)
        processes.average(parameter.grad for parameter in self.apart if parameter.grad is not None)
        self.optimizer.step()
        self.optimizer.zero_grad()
        advance(self.schedule, self.accelerator)
        return loss.detach(), logits.detach(), diagnostics

    def _outputs(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with self.accelerator.autocast():
            logits, features = self.model(images.to(self.device, non_blocking=True))
        return logits, features

    def _require_finite(self, meters: Meters, epoch: int) -> None:
        step = meters.first_bad_step()
        if step:
            raise self._divergence(epoch, step)

    def _divergence(self, epoch: int, step: int) -> UserError:
        kept = self.run.last_good(epoch - 1) if self.metrics else ""
        return UserError(f"the loss is not finite at epoch {epoch}, step {step}; {kept}A smaller `lr` usually helps")

    def _require_finite_scores(self, logits: Tensor, epoch: int) -> None:
        if not logits.isfinite().all():
            kept = self.run.last_good(epoch - 1) if self.metrics else ""
            raise UserError(
                f"the model's logits are not finite after epoch {epoch}; {kept}A smaller `lr` usually helps"
            )

    def _finish_epoch(self, metrics: dict[str, Any]) -> None:
        self.metrics.append(metrics)
        self.run.save_epoch(take_snapshot(self.parts), self.metrics, self._is_best())
        self.progress.line("source " + epoch_summary(metrics, self.options.epochs))

    def _resume(self) -> None:
        kept = self.run.resume()
        if kept is not None:
            snapshot, self.metrics = kept
            require_numbers(self.metrics, self.scores, first=1)
            restore_snapshot(self.parts, snapshot)
            self.progress.line(f"continuing {self.run.path} after epoch {self.metrics[-1]['epoch']}")


def training_loader(images: DomainImages, options: PretrainConfig, length: int | None = None) -> ImageLoader:
    """A loader in a new random order each epoch; the incomplete last batch is dropped. Each of many processes has
    images of its own, and all as many.

    Args:
        images: of one domain
        options: batch size, seed and workers
        length: images an epoch, pass after pass. Default: one pass

    Raises:
        UserError: fewer images than one batch
    """
    shard = Shard.of_this_process(len(images))
    a_pass = len(images) // shard.world_size
    if a_pass < options.batch_size:
        together = f" in each of {shard.world_size} processes" * (shard.world_size > 1)
        raise UserError(
            f"domain {images.domain.name}: {len(images)} images to train on are fewer than one batch of "
            f"{options.batch_size}{together}; pass a smaller `batch_size`"
        )
    sampler = EpochSampler(shard.positions, len(images), images.seed, length or a_pass, shard.rank)
    return ImageLoader(images, options.batch_size, options.workers, sampler, drop_last=True)


def source_cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Of labelled source images, in float32."""
    labels = labels.to(logits.device, non_blocking=True)
    return nn.functional.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)
