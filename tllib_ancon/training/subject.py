"""A model and images as ``adapt`` would use them: opened, passed over once, and tried in two training steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tllib_ancon.config.check import CheckConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages, Workers
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.models.classifier import (
    Classifier,
    NetworkClassifier,
    as_classifier,
    choose_adapted_parameters,
)
from tllib_ancon.models.outputs import OtherOutput, called, evaluating
from tllib_ancon.runtime.errors import UserError, one_line
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.class_names import in_the_models_order
from tllib_ancon.training.inference import evaluation_loader
from tllib_ancon.training.loop import require_batch_statistics, training_loader
from tllib_ancon.training.mirroring import MirrorDisagreement, mirror_disagreement, unmirrored
from tllib_ancon.training.probing import probe_of
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.resolve import PassedTransforms, Transforms, facts_of, resolve
from tllib_ancon.training.source import Source, open_source

SAMPLE = 128
"""Images at most that the model predicts."""

DECODED = 32
"""Images at most of the sample whose pixels are looked at."""

STEPS, TRIED = 2, 16
"""Training steps that are tried, and their images at most: the first counts the memory, the second the time. Both are
in proportion to the number of images."""

NO_GRADIENT = "no parameter that learns reaches the loss: the forward pass runs parts under torch.no_grad or detaches"


@dataclass(frozen=True)
class SamplePass:
    """Logits of a sample, (M, K) on the CPU. ``seconds`` is the time for one image."""

    logits: Tensor
    seconds: float


@dataclass(frozen=True)
class Trial:
    """Cost of a training step of ``batch_size`` images, from steps of few, or the ``error`` in which one ended."""

    batch_size: int
    steps: int  # of one epoch
    load_seconds: float = 0.0
    step_seconds: float = 0.0
    activations: int = 0  # bytes
    without_gradient: tuple[str, ...] = ()  # parameters that should learn and get no gradient
    error: str = ""


@dataclass(frozen=True)
class Subject:
    """A model and images as ``adapt`` would use them.

    Attributes:
        config: settings with every default filled in
        given: settings of the user
        start: where the model comes from
        network: copy of the model
        classifier: the same copy with its head; None for a model without logits (B, K)
        output_error: why there is no classifier
        output: what the model returns for ``probe``, a few images
        target: all images; ``sample`` are some of them, spread evenly
        labelled: whether the images have labels
        folder_lines: what is assumed about class folders
        passed: transforms or processor of the caller
        frozen: names of the parameters that were frozen
        thawed: how many of these ``adapted`` lets learn
        learning_error: why no parameter learns
        disagreement: how often a mirror changes the predicted class; None if the inputs are no images
    """

    config: CheckConfig
    given: CheckConfig
    start: Source
    network: nn.Module
    classifier: Classifier | None
    output_error: str
    probe: Tensor
    output: Any
    target: Domain
    sample: Domain
    labelled: bool
    transforms: Transforms
    passed: PassedTransforms
    decoded: list[Any]
    folder_lines: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    thawed: int = 0
    learning_error: str = ""
    disagreement: MirrorDisagreement | None = None
    sample_pass: SamplePass | None = None
    trial: Trial | None = None


def open_subject(config: CheckConfig, model: Any, images: Any, head: str | None, passed: PassedTransforms) -> Subject:
    """Open a model and images as ``adapt`` does, and find the model's head."""
    start = open_source(config, model)
    opened = inputs.images_of(config, images, None, start.classes)
    network = start.load(config)
    if not start.checkpoint:
        inputs.unpacking(network, opened)
    resolved, notes = resolve(config, facts_of(config, start, network, opened, passed))
    Progress(config.quiet).lines(notes)
    target, transforms = inputs.prepared(resolved, network, opened.without_labels(), passed)
    network.to(devices.device())
    probe = probe_of(target, transforms.evaluation).to(devices.device())
    output = called(network, probe)
    classifier, output_error = None, ""
    try:
        classifier = as_classifier(network, head, probe)
    except OtherOutput as error:
        output_error = str(error)
    labelled, lines = opened.labels is not None, list[str]()
    if classifier is not None:
        ordered = _in_order(opened, network, classifier.num_classes, start, lines.append)
        labelled, target = ordered.labels is not None, replace(target, classes=ordered.classes)
    sample = target.subset(np.linspace(0, len(target) - 1, min(SAMPLE, len(target))).round().astype(np.int64))
    return Subject(
        config=resolved,
        given=config,
        start=start,
        network=network,
        classifier=classifier,
        output_error=output_error,
        probe=probe,
        output=output,
        target=target,
        sample=sample,
        labelled=labelled,
        folder_lines=tuple(lines),
        transforms=transforms,
        passed=passed,
        decoded=[sample.image(index) for index in range(min(DECODED, len(sample)))],
    )


def _in_order(
    opened: Domain, network: nn.Module, num_classes: int, start: Source, show: Callable[[str], None]
) -> Domain:
    """The images with labels and class names in the order of the model's, as far as they fit."""
    try:
        return in_the_models_order(opened, network, num_classes, start, show)
    except UserError:  # the fact about classes tells it
        return opened


def choose_parameters(subject: Subject, classifier: Classifier) -> dict[str, Any]:
    """Let the parameters learn that ``adapted`` names; returns attributes of a :class:`Subject`."""
    frozen = tuple(name for name, parameter in named_parameters(classifier) if not parameter.requires_grad)
    try:
        thawed = choose_adapted_parameters(classifier, subject.config.adapted)
    except UserError as error:
        return {"frozen": frozen, "learning_error": str(error)}
    return {"frozen": frozen, "thawed": thawed}


def named_parameters(classifier: Classifier) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters by their names in the caller's network."""
    network = classifier.network if isinstance(classifier, NetworkClassifier) else classifier
    return network.named_parameters()


def compare_mirrors(subject: Subject, classifier: Classifier) -> dict[str, Any]:
    """Compare predictions for images and their mirrors, and leave out mirrors as ``adapt`` does; returns attributes of
    a :class:`Subject`."""
    config = subject.config
    if subject.probe.ndim != 4:
        return {}
    disagreement = mirror_disagreement(
        classifier,
        subject.target,
        subject.transforms.evaluation,
        batch_size=config.batch_size or SAMPLE,
        workers=config.workers,
        seed=config.seed,
    )
    mirrors = subject.transforms.second_view is mirror and subject.given.no_hflip is None
    if not (mirrors and disagreement.changes_class):
        return {"disagreement": disagreement}
    without, transforms = unmirrored(config, classifier, subject.target, subject.passed)
    return {"disagreement": disagreement, "config": without, "transforms": transforms}


def predict_and_try(subject: Subject, classifier: Classifier) -> tuple[SamplePass, Trial]:
    """Predict the sample, and try two training steps with the same worker processes."""
    config = subject.config
    assert config.batch_size is not None
    workers = Workers(config.workers)
    predicting = evaluation_loader(subject.sample, subject.transforms.evaluation, config.batch_size, workers)
    images = UnlabelledImages(subject.target, subject.transforms.train, config.seed)
    training = training_loader(images, min(config.batch_size, TRIED), workers, batches=STEPS)
    updates = len(subject.target) // (config.batch_size * config.accumulation_steps)
    trial = Trial(config.batch_size, max(updates, 1) * config.accumulation_steps)
    devices.make_reproducible(config.seed, config.deterministic)
    sample_pass = _predict(predicting, classifier, Progress(config.quiet))
    try:
        require_batch_statistics(classifier, config.batch_size)
        trial = _try_steps(subject, classifier, training, trial)
    except Exception as error:  # of a user's own network, or of a device without room
        trial = replace(trial, error=one_line(error))
    classifier.zero_grad()
    return sample_pass, trial


@torch.no_grad()
def _predict(loader: ImageLoader, classifier: Classifier, progress: Progress) -> SamplePass:
    logits: list[Tensor] = []
    started = time.perf_counter()
    with evaluating(classifier), progress.bar("predictions of a sample", len(loader)) as bar:
        for _, images in loader:
            logits.append(classifier.predict(images.to(devices.device()))[0].float().cpu())
            bar.update()
    seconds = (time.perf_counter() - started) / loader.num_images
    return SamplePass(torch.cat(logits), seconds)


def _try_steps(subject: Subject, classifier: Classifier, loader: ImageLoader, trial: Trial) -> Trial:
    """Two steps forward and backward of the views with which ``adapt`` trains; nothing is updated."""
    config = subject.config
    times = trial.batch_size / loader.batch_size
    started = time.perf_counter()
    batches = [images for _, images in loader]
    load_seconds = times * (time.perf_counter() - started) / len(batches)
    BatchNormPolicy(config.batch_norm).set_mode(classifier, config.dropout)
    if config.channels_last:
        classifier.to(memory_format=torch.channels_last)
    stored = StoredTensors(classifier)
    seconds = 0.0
    for number, images in enumerate(batches):
        views = [images]
        if config.views == 2 and subject.transforms.second_view is not None:
            views.append(subject.transforms.second_view(images))
        started = time.perf_counter()
        with stored.counting() if number == 0 else nullcontext(), _precision(config.mixed_precision):
            logits, _ = classifier.predict(torch.cat(views).to(devices.device()))
        loss = -(logits.float().softmax(1).detach() * logits.float().log_softmax(1)).sum(1).mean()
        if not loss.requires_grad:
            return replace(trial, error=NO_GRADIENT)
        torch.autograd.backward([loss])
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    learning = [(name, parameter) for name, parameter in named_parameters(classifier) if parameter.requires_grad]
    silent = tuple(name for name, parameter in learning if parameter.grad is None)
    return replace(
        trial,
        load_seconds=load_seconds,
        step_seconds=times * seconds,
        activations=round(times * stored.bytes),
        without_gradient=silent,
    )


def _precision(mixed_precision: str | None) -> AbstractContextManager[Any]:
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    if mixed_precision not in types:
        return nullcontext()
    return torch.autocast(devices.device().type, types[mixed_precision])


class StoredTensors:
    """Count the bytes that a forward pass stores for its backward pass, without the weights."""

    def __init__(self, network: nn.Module):
        self.weights = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
        self.sizes: dict[int, int] = {}

    def counting(self) -> AbstractContextManager[Any]:
        return torch.autograd.graph.saved_tensors_hooks(self._add, _unchanged)

    def _add(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.weights:
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
