"""The trainer: steps, epochs, precision, the schedule of the rate, and resuming. It knows no method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import View
from tllib_ancon.models.batch_norm import one_value_error
from tllib_ancon.models.classifier import LogitsAndFeatures, ParameterGroups
from tllib_ancon.runs.directory import MemoryRun
from tllib_ancon.runs.state import Stateful, restore_snapshot, take_snapshot
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import NotFinite, named
from tllib_ancon.runtime.interruption import Interruption
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Metrics, Record, State
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.inference import Outputs, predict_domain
from tllib_ancon.training.optimizer import create_optimizer, power_decay
from tllib_ancon.training.progress import Meters, Progress

MANY_CONVOLUTIONS = 8
"""From this number of convolutions on a network is faster with channels last."""

Item = TypeVar("Item")

Step = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Loss, logits, and what else is averaged over an epoch."""


class Objective(Protocol):
    """The loss of a training."""

    def set_mode(self, model: nn.Module) -> None:
        """Put the model into the mode of a training step."""

    def __call__(self, *batch: Any) -> Step:
        """The loss of a batch, with a part from each loader; FloatingPointError for one that is not finite."""
        ...


class Trainer:
    """Epochs of steps, which callbacks prepare, score, store and show.

    The model's call in training mode returns logits and features. Each loader gives a part of a step's batch; the first
    to end ends an epoch.

    Args:
        model: network that learns, changed in place
        loaders: of a step
        groups: parameters that learn, with their rates
        options: settings of the optimiser, the schedule, the precision, the seed and the length
        run: where the training is stored
        progress: where bars and lines are shown
        parts: what else a run needs to resume, by name
        steps_of_the_schedule: over which the rate decays. Default: all

    Attributes:
        network: the model without its wrappers
        metrics: numbers of each epoch so far, those of the current one last
        notes: what the training told the user
        step: number of the current step in its epoch, from 1
        trains: whether some parameter learns; without any an epoch has no step
        last_epoch: number of the last epoch
    """

    def __init__(
        self,
        model: nn.Module,
        loaders: Sequence[ImageLoader],
        groups: ParameterGroups,
        options: AdaptConfig | PretrainConfig,
        run: MemoryRun,
        progress: Progress,
        parts: Mapping[str, Stateful] = MappingProxyType({}),
        steps_of_the_schedule: int | None = None,
    ):
        self.loaders = loaders
        self.options = options
        self.run = run
        self.progress = progress
        self.steps = min(map(len, loaders))
        self.images_a_step = sum(loader.batch_size for loader in loaders)
        self.step = 0
        self.first_epoch = 1
        self.last_epoch = options.epochs
        self.metrics: list[Metrics] = []
        self.notes: list[Note] = []
        self.accelerator = devices.create_accelerator(options.mixed_precision)
        self.device: torch.device = self.accelerator.device
        use_fastest_layout(model)
        optimizer = create_optimizer(groups, options, model)
        self.trains = any(group["params"] for group in optimizer.param_groups)
        # Of a prepared optimiser it sees no steps.
        self.schedule = power_decay(optimizer, options, steps_of_the_schedule or options.epochs * self.steps)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        if processes.world_size() > 1:
            # Each process keeps its own running statistics: training reads none, evaluation the main process's.
            self.model.broadcast_buffers = False
        self.network: Any = self.accelerator.unwrap_model(self.model)
        self.parts: dict[str, Stateful] = {
            "model": self.network,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            **parts,
        }
        if self.accelerator.scaler is not None:
            self.parts["scaler"] = self.accelerator.scaler
        self.interruption = Interruption(run.after_a_stop)
        if processes.rank() > 0:  # noise, such as dropout's, differs between processes
            torch.manual_seed(options.seed + processes.rank())

    @property
    def epoch(self) -> int:
        """Number of the current epoch."""
        return int(self.metrics[-1]["epoch"])

    def fit(
        self,
        objective: Objective,
        callbacks: Sequence[Callback],
        settings: Record,
        result_of: Callable[[list[Metrics]], Record],
        first_epoch: int = 1,
    ) -> Record:
        """Begin or resume the run of these settings; a finished run is not trained again.

        Args:
            objective: the loss of a step
            callbacks: called at each event, in this order
            settings: what ``config.json`` holds
            result_of: metrics of all epochs -> what ``result.json`` holds
            first_epoch: 1, or 0 for an epoch without a step that scores the model before training

        Returns: the result
        """
        self.first_epoch = first_epoch
        with closing(self.run):
            self.progress.lines(self.run.begin(settings, self.options.overwrite))
            if self.run.finished:
                self.progress.line(f"{self.run} holds this run already, finished")
                self.metrics = self.run.metrics()
                return result_of(self.metrics)
            self.parts |= {callback.name: callback for callback in callbacks if callback.name}
            with self.interruption:
                self._resume(callbacks)
                self._run_epochs(objective, callbacks)
            result = result_of(self.metrics)
            self.run.finish(result)
        self.progress.finish(result)
        return result

    def set_rate(self, rate: float) -> None:
        """Let all parameters learn at this rate, from which the schedule decays."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
            group["initial_lr"] = rate
        self.schedule.base_lrs = [rate] * len(self.optimizer.param_groups)

    def tell(self, note: Note) -> None:
        """Show a note, and keep it for the result."""
        self.notes.append(note)
        self.progress.line(str(note))

    def stop_after_this_epoch(self) -> None:
        """Make the current epoch the last one."""
        self.last_epoch = self.epoch

    def snapshot(self) -> State:
        """All that a run needs to resume after this epoch."""
        return take_snapshot(self.parts)

    def outputs(self, images: Tensor) -> LogitsAndFeatures:
        """Logits and features of images, with gradient."""
        try:
            with self.accelerator.autocast():
                logits, features = self.model(images.to(self.device, non_blocking=True))
        except ValueError as error:  # batch-norm that gets one value of a channel
            if len(images) > 1:
                raise
            raise one_value_error() from error
        return logits, features

    def predict(self, loader: ImageLoader, view: View | None = None, network: nn.Module | None = None) -> Outputs:
        """Predict by the current model, or by another network."""
        title = f"epoch {self.epoch}/{self.last_epoch}, predictions"
        model = self.network if network is None else network
        with self.accelerator.autocast(), self.progress.bar(title, len(loader), loader) as bar:
            return predict_domain(model, self.watch(bar), self.device, loader.num_images, len(loader.dataset), view)

    def watch(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The same batches until a signal comes."""
        return self.interruption.watch(batches, self.epoch)

    def require_finite(self, logits: Tensor) -> None:
        """Raise an error for predictions of the current model that are not finite."""
        if not logits.isfinite().all():
            raise self._divergence(f"after epoch {self.epoch}")

    def _resume(self, callbacks: Sequence[Callback]) -> None:
        """Continue after the last complete epoch of the run, if it has one."""
        resumed = self.run.resume()
        if resumed is None:
            self.progress.line(f"epochs: {self.last_epoch}, of {self.steps} steps with {self.images_a_step} images")
        else:
            snapshot, self.metrics = resumed
            restore_snapshot(self.parts, snapshot)
            self.progress.line(f"continuing {self.run} after epoch {self.epoch}")
        for callback in callbacks:
            callback.before_training(self)

    def _run_epochs(self, objective: Objective, callbacks: Sequence[Callback]) -> None:
        epoch = self.first_epoch + len(self.metrics)
        while epoch <= self.last_epoch:  # which a callback may bring forward
            self.metrics.append({"epoch": epoch})
            if epoch > 0:
                for callback in callbacks:
                    callback.begin_epoch(self)
                self._train_epoch(objective, callbacks)
            for callback in callbacks:
                callback.after_epoch(self)
            epoch += 1

    def _train_epoch(self, objective: Objective, callbacks: Sequence[Callback]) -> None:
        if not self.trains:
            return
        for loader in self.loaders:
            loader.sampler.epoch = self.epoch - 1
        objective.set_mode(self.model)
        meters = Meters(self.device)
        with self.progress.bar(f"epoch {self.epoch}/{self.last_epoch}", self.steps) as bar:
            for step, batch in enumerate(self.watch(zip(*self.loaders, strict=False)), start=1):
                self.step = step
                meters.add(*self._learn(objective, batch))
                bar.update()
                if step % self.options.print_freq == 0 or step == self.steps:
                    self.progress.step(bar, meters.read(self.images_a_step))
                    self._require_finite_steps(meters)
                for callback in callbacks:
                    callback.after_step(self)
        self.metrics[-1] |= meters.read(self.images_a_step)

    def _learn(self, objective: Objective, batch: tuple[Any, ...]) -> Step:
        """Make a step by the loss of a batch."""
        try:
            loss, logits, diagnostics = objective(*batch)
        except FloatingPointError:
            raise self._divergence(f"at epoch {self.epoch}, step {self.step}") from None
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if not self.accelerator.optimizer_step_was_skipped:  # by the gradient scaler of fp16
            self.schedule.step()
        return loss.detach(), logits.detach(), diagnostics

    def _require_finite_steps(self, meters: Meters) -> None:
        bad_step = meters.first_bad_step()
        if bad_step:
            raise self._divergence(f"at epoch {self.epoch}, step {bad_step}")

    def _divergence(self, when: str) -> NotFinite:
        if self.epoch == 0:
            return NotFinite(
                "the source model's logits are not finite: its weights are damaged", "give another checkpoint"
            )
        last_good = ""
        if self.epoch > self.first_epoch:
            last_good = self.run.last_good(self.epoch - 1)
        return NotFinite(f"logits or loss are not finite {when}", f"{last_good}pass a smaller {named('lr')}", "lr")


@dataclass(frozen=True)
class Training:
    """A trainer with its loss and its callbacks.

    Attributes:
        trainer: which trains the model
        objective: the loss of a step
        callbacks: in the order in which they are called
        result_of: metrics of all epochs -> what ``result.json`` holds
        first_epoch: 1, or 0 for an epoch without a step that scores the model before training
    """

    trainer: Trainer
    objective: Objective
    callbacks: Sequence[Callback]
    result_of: Callable[[list[Metrics]], Record]
    first_epoch: int = 1

    def fit(self, settings: Record) -> Record:
        """Begin or resume the run of these settings, as ``config.json`` holds them; returns the result."""
        return self.trainer.fit(self.objective, self.callbacks, settings, self.result_of, self.first_epoch)


def use_fastest_layout(model: nn.Module) -> None:
    """Channels last in memory, for networks that are faster with them; few convolutions do not justify other
    rounding."""
    modules = [*model.modules()]
    pools = any(isinstance(module, nn.MaxPool2d) for module in modules)
    if pools or sum(isinstance(module, nn.Conv2d) for module in modules) >= MANY_CONVOLUTIONS:
        model.to(memory_format=torch.channels_last)
