"""The trainer: steps, epochs, precision, the schedule of the rate, and resuming. It knows no method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import View
from tllib_ancon.models.batch_norm import one_value_error
from tllib_ancon.models.classifier import Classifier, LogitsAndFeatures, ParameterGroups
from tllib_ancon.runs.directory import RunDirectory
from tllib_ancon.runs.state import restore_snapshot
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import NotFinite, named
from tllib_ancon.runtime.interruption import Interruption
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Metrics, Record, State
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.inference import Outputs, run_network, without_features
from tllib_ancon.training.not_finite import predicted_classes, require_predictions
from tllib_ancon.training.optimizer import create_optimizer, power_decay
from tllib_ancon.training.progress import Meters, Progress

MANY_CONVOLUTIONS = 8
"""From this number of convolutions on a network is faster with channels last."""

PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16}

Item = TypeVar("Item")

Step = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Loss, logits, and what else is averaged over an epoch."""


class _Objective(Protocol):
    """The loss of a training."""

    def set_mode(self, model: nn.Module) -> None:
        """Put the model into the mode of a training step."""

    def __call__(self, *batch: Any) -> Step:
        """The loss of a batch, with a part from each loader."""
        ...


class Trainer:
    """Epochs of steps, which callbacks prepare, score, store and show. Who composes a training sets the loss, the
    callbacks and the result before :meth:`fit`.

    The model's call in training mode returns logits and features. Each loader gives a part of a step's batch; the first
    to end ends an epoch.

    Args:
        model: network that learns, changed in place
        loaders: of a step
        groups: parameters that learn, with their rates
        settings: settings of the optimiser, the schedule, the precision, the seed and the length
        parts: what else a run needs to resume, by name
        steps_of_the_schedule: over which the rate decays. Default: all

    Attributes:
        objective: the loss of a step
        callbacks: called at each event, in this order
        result_of: metrics of all epochs -> what ``result.json`` holds
        first_epoch: 1, or 0 for an epoch without a step that scores the model before training
        run: the directory where the training is stored; None for a training in memory
        network: the model without its wrappers
        metrics: numbers of each epoch so far, those of the current one last
        notes: what the training told the user
        step: number of the current step in its epoch, from 1
        trains: whether some parameter learns; without any an epoch has no step
        last_epoch: number of the last epoch
        best_weights: of a training that is stored nowhere, the weights of its best epoch
    """

    objective: _Objective
    callbacks: Sequence[Callback]
    result_of: Callable[[list[Metrics]], Record]
    first_epoch = 1

    def __init__(
        self,
        model: nn.Module,
        loaders: Sequence[ImageLoader],
        groups: ParameterGroups,
        settings: AdaptConfig | PretrainConfig,
        parts: Mapping[str, Any] = MappingProxyType({}),
        steps_of_the_schedule: int | None = None,
    ):
        self.loaders = loaders
        self.settings = settings
        self.run = None if settings.log is None else RunDirectory(settings.log)
        self.progress = Progress(settings.quiet)
        self.steps = min(map(len, loaders))
        self.images_a_step = sum(loader.batch_size for loader in loaders)
        self.step = 0
        self.last_epoch = settings.epochs
        self.metrics: list[Metrics] = []
        self.notes: list[Note] = []
        self.best_weights: State = {}
        self.device = devices.device()
        _use_fastest_layout(model)
        self.network: Any = model.to(self.device)
        self.optimizer = create_optimizer(groups, settings)
        self.trains = any(group["params"] for group in self.optimizer.param_groups)
        self.schedule = power_decay(self.optimizer, settings, steps_of_the_schedule or settings.epochs * self.steps)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.mixed_precision == "fp16")
        self.parts: dict[str, Any] = {
            "model": self.network,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "scaler": self.scaler,
            **parts,
        }
        self.interruption = Interruption()
        self.model = self.network
        if processes.world_size() > 1 and self.trains:
            self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
            # Each process keeps its own running statistics: training reads none, evaluation the main process's.
            self.model.broadcast_buffers = False
        if processes.rank() > 0:  # noise, such as dropout's, differs between processes
            torch.manual_seed(settings.seed + processes.rank())

    @property
    def epoch(self) -> int:
        """Number of the current epoch."""
        return int(self.metrics[-1]["epoch"])

    def fit(self, record: Record) -> Record:
        """Begin or resume the run that ``config.json`` records so; a finished run is not trained again. Returns the
        result."""
        try:
            if self.run is None:
                self._run_epochs()
            else:
                with closing(self.run):
                    self._fit_stored(self.run, record)
            return self.result_of(self.metrics)
        finally:
            # These refer to the trainer: circles, in which the loaders' processes would outlive the run.
            self.parts.clear()
            del self.objective, self.callbacks

    def _fit_stored(self, run: RunDirectory, record: Record) -> None:
        run.begin(record, self.settings.overwrite)
        if run.finished:
            self.tell(Note("finished", f"{run.path} holds this run already, finished"))
            self.metrics = run.metrics()
            return
        self.parts |= {f"callback {callback.name}": callback for callback in self.callbacks if callback.name}
        snapshot, metrics = run.resume()
        if snapshot:
            restore_snapshot(self.parts, snapshot)
            self.metrics = metrics
            self.tell(Note("continues", f"continuing {run.path} after epoch {self.epoch}"))
        self._run_epochs()
        run.finish(self.result_of(self.metrics))

    def _run_epochs(self) -> None:
        """Train, or continue after the epochs of :attr:`metrics`."""
        with self.interruption:
            for callback in self.callbacks:
                callback.before_training(self)
            while self.first_epoch + len(self.metrics) <= self.last_epoch:  # which a callback may bring forward
                self.metrics.append({"epoch": self.first_epoch + len(self.metrics)})
                self._run_epoch()

    def tell(self, *notes: Note) -> None:
        """Show notes, and keep them for the result."""
        self.notes += notes
        self.progress.notes(notes)

    def stop_after_this_epoch(self) -> None:
        """Make the current epoch the last one."""
        self.last_epoch = self.epoch

    def autocast(self) -> torch.autocast:
        """The context of the training's precision."""
        dtype = PRECISIONS.get(self.settings.mixed_precision)
        return torch.autocast(self.device.type, dtype, enabled=dtype is not None)

    def outputs(self, images: Tensor) -> LogitsAndFeatures:
        """Logits and features of images, float32 with gradient."""
        try:
            with self.autocast():
                logits, features = self.model(images)
        except ValueError as error:  # batch-norm that gets one value of a channel
            if len(images) > 1:
                raise
            raise one_value_error() from error
        return logits.float(), features.float()

    def predict(self, loader: ImageLoader, view: View | None = None, network: nn.Module | None = None) -> Outputs:
        """Predict by the current model, or by another network, and leave it in evaluation mode; only a ``Classifier``
        has features. Many processes predict by the model of the main one."""
        title = f"epoch {self.epoch}/{self.last_epoch}, predictions"
        images = loader.dataset.domain
        model = network or self.network
        processes.broadcast(model.buffers())
        model.eval()
        predict = model.predict if isinstance(model, Classifier) else partial(without_features, model)
        with self.autocast(), self.progress.bar(title, len(loader), loader) as bar:
            outputs = run_network(predict, loader, self.watch(bar), view)
        classes = predicted_classes(outputs.logits).numpy()
        if network is not None:
            require_predictions(classes, images, "teacher")
        elif self.epoch == 0:
            require_predictions(classes, images, "source model")
        self._require_finite(bool((classes >= 0).all()), f"after epoch {self.epoch}")
        return outputs

    def watch(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The same batches until a signal comes."""
        return self.interruption.watch(batches, self.epoch)

    def _run_epoch(self) -> None:
        if self.epoch > 0:
            for callback in self.callbacks:
                callback.begin_epoch(self)
            self._train_epoch()
        for callback in self.callbacks:
            callback.after_epoch(self)
        self.progress.epoch(self.metrics[-1], self.last_epoch)

    def _train_epoch(self) -> None:
        if not self.trains:
            return
        for loader in self.loaders:
            loader.sampler.epoch = self.epoch - 1
        self.objective.set_mode(self.model)
        meters = Meters(self.device)
        with self.progress.bar(f"epoch {self.epoch}/{self.last_epoch}", self.steps) as bar:
            for step, batch in enumerate(self.watch(zip(*self.loaders, strict=False)), start=1):
                self.step = step
                meters.add(*self._learn(batch))
                bar.update()
                if step % self.settings.print_freq == 0:
                    bar.set_postfix(self._read(meters), refresh=False)
                for callback in self.callbacks:
                    callback.after_step(self)
        self.metrics[-1] |= self._read(meters)

    def _read(self, meters: Meters) -> Metrics:
        """The numbers of the epoch so far; an error if a loss or logits are not finite."""
        self._require_finite(meters.are_finite(), f"by epoch {self.epoch}, step {self.step}")
        return meters.read(self.images_a_step)

    def _learn(self, batch: tuple[Any, ...]) -> Step:
        """Make a step by the loss of a batch."""
        loss, logits, diagnostics = self.objective(*batch)
        scale = self.scaler.get_scale()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.scaler.get_scale() >= scale:  # else it left out a step of fp16
            self.schedule.step()
        return loss.detach(), logits.detach(), diagnostics

    def _require_finite(self, is_finite: bool, when: str) -> None:
        if is_finite:
            return
        action = f"pass a smaller {named('lr')}, and leave out images for which predict finds no class"
        if self.settings.log is not None and len(self.metrics) > 1:
            action = f"{self.settings.log} holds the last good model, of epoch {self.epoch - 1}. {action}"
        raise NotFinite(f"logits or loss are not finite {when}", action, "lr")


def _use_fastest_layout(model: nn.Module) -> None:
    """Channels last in memory, for networks that are faster with them; few convolutions do not justify other
    rounding."""
    modules = [*model.modules()]
    pools = any(isinstance(module, nn.MaxPool2d) for module in modules)
    if pools or sum(isinstance(module, nn.Conv2d) for module in modules) >= MANY_CONVOLUTIONS:
        model.to(memory_format=torch.channels_last)
