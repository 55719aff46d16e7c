"""What ``check`` tries on a copy of a model with logits: predictions of a sample, and two training steps."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.data.batches import concatenated, to_device
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages, evaluation_loader, training_loader
from tllib_ancon.models.batch_norm import BatchNormPolicy, require_batch_statistics
from tllib_ancon.models.calling import evaluating
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.preflight.case import Case
from tllib_ancon.runtime.errors import UserError, one_line
from tllib_ancon.training import devices
from tllib_ancon.training.learning import choose_adapted_parameters
from tllib_ancon.training.progress import Progress
from tllib_ancon.training.trainer import use_fastest_layout

STEPS = 2
"""Training steps that are tried: the first counts the memory, the second the time."""

STEP_IMAGES = 16
"""Images at most of a step that is tried. Time and memory are in proportion to the number of images."""

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}

NO_GRADIENT = "no parameter that learns reaches the loss: the forward pass runs parts under torch.no_grad or detaches"


@dataclass(frozen=True)
class _TriedSteps:
    """Cost of a training step, or the ``error`` in which one ended.

    Attributes:
        seconds: time forward and backward for one image
        load_seconds: time to load one image for training
        activation_bytes: memory that the forward pass of one image stores
        without_gradient: parameters that should learn and get no gradient
        error: empty if the steps succeed
    """

    seconds: float = 0.0
    load_seconds: float = 0.0
    activation_bytes: float = 0.0
    without_gradient: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Rehearsal:
    """Predictions and training steps of a model with logits.

    Attributes:
        classifier: the copy that was tried, whose parameters learn as ``adapted`` names them
        frozen: names of the parameters that were frozen before
        num_thawed: how many of these learn
        learning_error: why no parameter learns
        logits: (M, K) of the sample, on the CPU
        predict_seconds: time to predict one image, without loading it
        steps: two training steps
    """

    classifier: Classifier
    frozen: tuple[str, ...]
    num_thawed: int
    learning_error: str
    logits: Tensor
    predict_seconds: float
    steps: _TriedSteps


def rehearse(case: Case) -> Rehearsal:
    """Predict the sample and try two training steps."""
    classifier = case.classifier
    config = case.config
    frozen = tuple(name for name, parameter in classifier.named_parameters() if not parameter.requires_grad)
    num_thawed = 0
    learning_error = ""
    try:
        num_thawed = choose_adapted_parameters(classifier, config.adapted)
    except UserError as error:
        learning_error = str(error)
    predicting = evaluation_loader(case.sample, case.transforms.evaluation, config.batch_size, config.workers)
    images = UnlabelledImages(case.target, case.transforms.train, config.seed)
    training = training_loader(images, min(config.batch_size, STEP_IMAGES), config.workers, batches=STEPS)
    devices.make_reproducible(config.seed, config.deterministic)
    logits, predict_seconds = _predict(predicting, classifier, Progress(config.quiet))
    try:
        require_batch_statistics(classifier, config.batch_size)
        steps = _try_steps(case, classifier, training)
    except Exception as error:  # of a user's own network, or of a device without room
        steps = _TriedSteps(error=one_line(error))
    classifier.zero_grad()
    return Rehearsal(classifier, frozen, num_thawed, learning_error, logits, predict_seconds, steps)


@torch.no_grad()
def _predict(loader: ImageLoader, classifier: Classifier, progress: Progress) -> tuple[Tensor, float]:
    """Logits of all images of a loader, and the time for one image without loading it."""
    logits: list[Tensor] = []
    seconds = 0.0
    with evaluating(classifier), progress.bar("predictions of a sample", len(loader)) as bar:
        for _, images in loader:
            started = time.perf_counter()
            batch_logits, _ = classifier.predict(to_device(images, devices.device()))
            logits.append(batch_logits.float().cpu())
            seconds += time.perf_counter() - started
            bar.update()
    return torch.cat(logits), seconds / loader.num_images


def _try_steps(case: Case, classifier: Classifier, loader: ImageLoader) -> _TriedSteps:
    """Two steps forward and backward of the views with which ``adapt`` trains; nothing is updated."""
    config = case.config
    started = time.perf_counter()
    first_images, second_images = [images for _, images in loader]
    load_seconds = (time.perf_counter() - started) / loader.num_images
    BatchNormPolicy(config.batch_norm).set_mode(classifier, config.dropout)
    use_fastest_layout(classifier)
    stored = _StoredTensors(classifier)
    with stored.counting():
        logits = _training_logits(case, classifier, first_images)
    if not logits.requires_grad:
        return _TriedSteps(error=NO_GRADIENT)
    _backward(logits)
    started = time.perf_counter()
    _backward(_training_logits(case, classifier, second_images))
    seconds = (time.perf_counter() - started) / loader.batch_size
    learning = [(name, parameter) for name, parameter in classifier.named_parameters() if parameter.requires_grad]
    return _TriedSteps(
        seconds=seconds,
        load_seconds=load_seconds,
        activation_bytes=stored.bytes / loader.batch_size,
        without_gradient=tuple(name for name, parameter in learning if parameter.grad is None),
    )


def _training_logits(case: Case, classifier: Classifier, images: Any) -> Tensor:
    """Logits of the views with which ``adapt`` trains."""
    views = [images]
    if case.config.views == 2 and case.transforms.second_view is not None:
        views.append(case.transforms.second_view(images))
    dtype = PRECISIONS.get(str(case.config.mixed_precision))
    with torch.autocast(devices.device().type, dtype, enabled=dtype is not None):
        logits, _ = classifier.predict(to_device(concatenated(views), devices.device()))
    return logits


def _backward(logits: Tensor) -> None:
    """Compute the gradients of a loss, the cross-entropy with the predictions themselves."""
    log_probabilities = logits.float().log_softmax(1)
    loss = -(log_probabilities.exp().detach() * log_probabilities).sum(1).mean()
    torch.autograd.backward([loss])
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class _StoredTensors:
    """Count the bytes that a forward pass stores for its backward pass, without the weights."""

    def __init__(self, network: nn.Module):
        self.weights = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
        self.sizes: dict[int, int] = {}

    def counting(self) -> AbstractContextManager[Any]:
        return torch.autograd.graph.saved_tensors_hooks(self._add, lambda tensor: tensor)

    def _add(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.weights:
            self.sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())
