"""The one training loop: steps, epochs, and resuming after a cut; training of sources and adaptation subclass it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.batches import Batch, to_device
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import View
from tllib_ancon.models.batch_norm import ONE_VALUE
from tllib_ancon.models.classifier import LogitsAndFeatures, ParameterGroups
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import NotFinite, UserError, named, reading
from tllib_ancon.runtime.interruption import Interruption
from tllib_ancon.runtime.types import Metrics, Record
from tllib_ancon.training import devices
from tllib_ancon.training.checkpointing import OTHER_VERSION, Stateful, restore_snapshot, take_snapshot
from tllib_ancon.training.inference import Outputs, predict_domain
from tllib_ancon.training.optimizer import create_optimizer, power_decay
from tllib_ancon.training.progress import Meters, Progress
from tllib_ancon.training.run import MemoryRun

MANY_CONVOLUTIONS = 8
"""From this number of convolutions on a network is faster with channels last."""

Step = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Loss, logits, and what else is averaged over an epoch."""


class TrainingLoop(ABC):
    """Epochs of steps, each scored and stored in a run, or without one the best model in memory.

    The model's call in training mode returns logits and features. Each loader gives a part of a step's batch; the first
    to end ends an epoch. ``groups`` are parameters with their learning rates. ``state`` holds what else a run needs to
    resume."""

    title = "epoch"
    first_epoch = 1

    def __init__(
        self,
        options: AdaptConfig | PretrainConfig,
        run: MemoryRun,
        progress: Progress,
        model: nn.Module,
        loaders: list[ImageLoader],
        groups: ParameterGroups,
        state: Mapping[str, Stateful] = MappingProxyType({}),
    ):
        self.options = options
        self.run = run
        self.progress = progress
        self.loaders = loaders
        self.last_epoch = options.epochs
        self.steps = min(map(len, loaders))
        self.images_a_step = sum(loader.batch_size for loader in loaders)
        self.accelerator = devices.create_accelerator(options.mixed_precision)
        self.device: torch.device = self.accelerator.device
        use_fastest_layout(model)
        optimizer = create_optimizer(groups, options, model)
        # Of a prepared optimiser it sees no steps.
        self.schedule = power_decay(optimizer, options, self._steps_of_the_schedule())
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        if processes.world_size() > 1:
            # Each process keeps its own running statistics: training reads none, evaluation the main process's.
            self.model.broadcast_buffers = False
        self.network: Any = self.accelerator.unwrap_model(self.model)
        self.parts: dict[str, Stateful] = {
            "model": self.network,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            **state,
        }
        if self.accelerator.scaler is not None:
            self.parts["scaler"] = self.accelerator.scaler
        self.interruption = Interruption(run.after_a_stop)
        self.metrics: list[Metrics] = []
        if processes.rank() > 0:  # noise, such as dropout's, differs between processes
            torch.manual_seed(options.seed + processes.rank())

    def fit(self, settings: Record) -> Record:
        """Begin or resume the run of these settings, as ``config.json`` holds them; returns ``result.json``, also of a
        finished run."""
        with closing(self.run):
            self.progress.lines(self.run.begin(settings, self.options.overwrite))
            if self.run.finished:
                self.progress.line(f"{self.run} holds this run already, finished")
                self._continue_from(self.run.metrics())
                return self.result()
            with self.interruption:
                self._run_epochs()
                self.run.wait()
            result = self.result()
            self.run.finish(result)
        self.progress.finish(result)
        return result

    def _steps_of_the_schedule(self) -> int:
        """The steps over which the learning rate decays: those of the whole training."""
        return self.options.epochs * self.steps

    def _run_epochs(self) -> None:
        """Train and score the epochs. An interrupted run resumes after its last complete epoch."""
        resumed = self.run.resume()
        if resumed is None:
            self.progress.line(f"epochs: {self.last_epoch}, of {self.steps} steps with {self.images_a_step} images")
        else:
            snapshot, metrics = resumed
            self._continue_from(metrics)
            restore_snapshot(self.parts, snapshot)
            self.progress.line(f"continuing {self.run} after epoch {metrics[-1]['epoch']}")
            self._keep()
        epoch = self.first_epoch + len(self.metrics)
        while epoch <= self.last_epoch:  # which a collapse brings forward
            self._run_epoch(epoch)
            epoch += 1

    def _run_epoch(self, epoch: int) -> None:
        metrics: Metrics = {"epoch": epoch}
        if epoch > 0:  # epoch 0 scores the source model
            metrics |= self._train_epoch(epoch)
        self.metrics.append(metrics)
        self._score(metrics)
        self.run.save_epoch(take_snapshot(self.parts), self.metrics, self._is_best())
        self._keep()
        self.progress.epoch(self.title, metrics, self.last_epoch)

    @abstractmethod
    def _loss(self, *batch: Any) -> Step:
        """Loss of a batch, with a part from each loader; FloatingPointError for numbers that are not finite."""

    @abstractmethod
    def _score(self, metrics: Metrics) -> None:
        """Add the scores of an epoch to its metrics, which are the last ones."""

    def _is_best(self) -> bool:
        return False

    @abstractmethod
    def result(self) -> Record:
        """``result.json``, of the metrics."""

    def _train_mode(self) -> None:
        self.model.train()

    def _update(self) -> None:
        self.optimizer.step()

    def _keep(self) -> None:  # noqa: B027 (a loop need not)
        """Store more of the last epoch than its state; also when a run resumes after it."""

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        for loader in self.loaders:
            loader.sampler.epoch = epoch - 1
        self._train_mode()
        meters = Meters(self.device)
        with self.progress.bar(f"{self.title} {epoch}/{self.last_epoch}", self.steps) as bar:
            batches = self.interruption.watch(zip(*self.loaders, strict=False), epoch)
            for step, batch in enumerate(batches, start=1):
                try:
                    meters.add(*self._step(batch))
                except FloatingPointError:
                    raise self._divergence(f"at epoch {epoch}, step {step}", epoch) from None
                bar.update()
                if step % self.options.print_freq == 0 or step == self.steps:
                    self.progress.step(bar, meters.read(self.images_a_step))
                    self._require_finite_steps(meters, epoch)
        return meters.read(self.images_a_step)

    def _require_finite_steps(self, meters: Meters, epoch: int) -> None:
        bad_step = meters.first_bad_step()
        if bad_step:
            raise self._divergence(f"at epoch {epoch}, step {bad_step}", epoch)

    def _step(self, batch: tuple[Any, ...]) -> Step:
        """Learn from a batch."""
        loss, logits, diagnostics = self._loss(*batch)
        self.accelerator.backward(loss)
        self._update()
        self.optimizer.zero_grad()
        if not self.accelerator.optimizer_step_was_skipped:  # by the gradient scaler of fp16
            self.schedule.step()
        return loss.detach(), logits.detach(), diagnostics

    def _outputs(self, images: Batch) -> LogitsAndFeatures:
        with self.accelerator.autocast(), _refusing_one_value():
            logits, features = self.model(to_device(images, self.device))
        return logits, features

    def _predict(self, loader: ImageLoader, view: View | None = None, network: nn.Module | None = None) -> Outputs:
        """Predict by the current model, which is that of the last epoch in the metrics, or by another network."""
        epoch = self.metrics[-1]["epoch"]
        title = f"{self.title} {epoch}/{self.last_epoch}, predictions"
        model = self.network if network is None else network
        with self.accelerator.autocast(), self.progress.bar(title, len(loader), loader) as bar:
            batches = self.interruption.watch(bar, epoch)
            return predict_domain(model, batches, self.device, loader.num_images, len(loader.dataset), view)

    def _require_finite(self, logits: Tensor) -> None:
        """Raise an error for predictions of the last epoch that are not finite."""
        epoch = self.metrics[-1]["epoch"]
        if not logits.isfinite().all():
            raise self._divergence(f"after epoch {epoch}", epoch)

    def _divergence(self, when: str, epoch: int) -> NotFinite:
        if epoch == 0:
            return NotFinite(
                "the source model's logits are not finite: its weights are damaged. Give another checkpoint"
            )
        last_good = ""
        if epoch > self.first_epoch:
            last_good = self.run.last_good(epoch - 1)
        return NotFinite(f"logits or loss are not finite {when}", f"{last_good}Pass a smaller {named('lr')}")

    def _continue_from(self, metrics: list[Metrics]) -> None:
        """Continue from the metrics of a run, which another version of this program may have written."""
        self.metrics = metrics
        with reading(self.run, "the metrics of this run", OTHER_VERSION):
            if metrics[-1]["epoch"] > 0:
                self.result()


def use_fastest_layout(model: nn.Module) -> None:
    """Channels last in memory, for networks that are faster with them; few convolutions do not justify other
    rounding."""
    modules = [*model.modules()]
    pools = any(isinstance(module, nn.MaxPool2d) for module in modules)
    if pools or sum(isinstance(module, nn.Conv2d) for module in modules) >= MANY_CONVOLUTIONS:
        model.to(memory_format=torch.channels_last)


@contextmanager
def _refusing_one_value() -> Iterator[None]:
    """In this context PyTorch's ValueError about a batch with one value for a channel of batch-norm is one line."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UserError(ONE_VALUE) from error
