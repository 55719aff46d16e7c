"""Predictions of another model, the teacher, from which pseudo-labels are made as well."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import ImageLoader, evaluation_loader
from tllib_ancon.data.transforms import Transform, View, mirror, shifted
from tllib_ancon.models.batch_norm import BatchNormPolicy, has_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.runtime.errors import NotFinite, named
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.runtime.types import State
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.target_loaders import AGREEMENT_SAMPLE, TargetLoaders

Predict = Callable[[ImageLoader, View | None, nn.Module], Outputs]
"""Images, another view of them or None, and a model -> outputs."""

POWER = 3
"""Of the ratio of reliabilities in the weight. This and the two next numbers: ``benchmarks/teacher.md``."""
LEAST_RATIO = 0.5
"""Ratio of reliabilities below which a teacher does not count."""
SMALLEST = 1e-3
LARGEST_WEIGHT = 4.0
_STORED = ("log_probabilities", "reliability", "weight")


@dataclass(frozen=True)
class OpenTeacher:
    """How a teacher predicts the classes of the adapted model.

    Attributes:
        checkpoint: its file, or its library and name; empty for a module of the caller
        model: its network, a copy
        images: the target, in whose order it predicts
        transform: its own preprocessing
        columns: (K,) for each class of the adapted model the class of the teacher
        batch_size: of its predictions
        sha256: of its weights
    """

    checkpoint: str
    model: Classifier
    images: ImageSource
    transform: Transform
    columns: list[int]
    batch_size: int
    sha256: str

    def loader(self, positions: Any, workers: int) -> ImageLoader:
        return evaluation_loader(self.images.subset(positions), self.transform, self.batch_size, workers)


class Teacher:
    r"""Predictions of another model, which every method makes its pseudo-labels from as well.

    .. math::
        \log f(x) + w \log g(x)

    takes the place of :math:`\log f`, from which a method makes labels, votes, memories and the class prior: f is the
    mean prediction of the adapted model for the views of a step, g that of the teacher for the whole image and its
    mirror, or for the image alone where images are not mirrored. g is predicted once, before training, and stored with
    the run. A random crop in training gets the g of its whole image, so that the teacher costs one pass.

    w is chosen without labels, before the first step, from the classes that both models predict for
    at most 1,024 images and for shifts of them (see :func:`reliability`):

    .. math::
        w = 0 \text{ if } q < 0.5, \text{ else } \min(4, q^3 / 2),   q = r(g) / r(f)

    It is 1 for inputs that are no images.

    Batch-norm statistics of the teacher are mixed with those of the target, as in
    :class:`~tllib_ancon.models.batch_norm.BatchNormPolicy`, unless the run has ``batch_norm=source``.

    Args:
        opened: the teacher's model and its images
        config: settings of the run
        mirrors: whether the run mirrors images
        has_views: whether images can be shifted
    """

    def __init__(self, opened: OpenTeacher, config: AdaptConfig, mirrors: bool, has_views: bool):
        self.opened = opened
        self.config = config
        self.mirrors = mirrors
        self.chooses_weight = has_views
        self.log_probabilities = torch.empty(0)  # (N, K), log g of the images to adapt on
        self.reliability = 0.0
        self.weight = 1.0

    def __call__(self, indices: Tensor, logits: Tensor) -> Tensor:
        """Add w log g of these images to logits (B, K)."""
        evidence = self.log_probabilities.index_select(0, indices.to(self.log_probabilities.device))
        return logits.float() + self.weight * evidence.to(logits.device)

    def __str__(self) -> str:
        return f"the teacher counts with the weight {self.weight:.2f}"

    def open_loaders(self, loaders: TargetLoaders) -> None:
        """Let the processes of a run load the images for the teacher as well."""
        sampled_indices = loaders.adapted_indices[loaders.sampled.numpy()]
        self.adapted = self.opened.loader(loaders.adapted_indices, loaders.workers)
        self.sample = self.opened.loader(sampled_indices, loaders.workers)
        self.first_of_sample = self.opened.loader(sampled_indices[:AGREEMENT_SAMPLE], loaders.workers)

    def predict(self, predict: Predict) -> None:
        """Predict the images to adapt on, once, by a function that runs a model over a loader.

        Raises:
            NotFinite: predictions that are not finite
        """
        model = self.opened.model
        if self.config.batch_norm != "source" and has_statistics(model):
            num_images = len(Shard.of_this_process(len(self.sample.dataset)))
            BatchNormPolicy("mixed", num_images=num_images).prepare(
                model,
                lambda: predict(self.sample, None, model).logits,
                lambda: predict(self.first_of_sample, None, model).logits,
                None,
            )
        log_probabilities = self._log_probabilities(predict(self.adapted, None, model))
        if self.mirrors:
            mirrored = self._log_probabilities(predict(self.adapted, mirror, model))
            log_probabilities = mean_prediction(log_probabilities, mirrored)
        self.log_probabilities = log_probabilities
        if self.chooses_weight:
            views = [predict(self.sample, view, model) for view in (None, shifted)]
            self.reliability = reliability(*map(self._log_probabilities, views))
        model.cpu()

    def choose_weight(self, sample: ImageLoader, predict: Callable[[ImageLoader, View | None], Outputs]) -> float:
        """Choose w by the predictions of the adapted model. Returns w."""
        if self.chooses_weight:
            views = [predict(sample, view).logits for view in (None, shifted)]
            ratio = self.reliability / reliability(*views)
            self.weight = 0.0 if ratio < LEAST_RATIO else min(LARGEST_WEIGHT, ratio**POWER / 2)
        return self.weight

    def state_dict(self) -> State:
        return {name: getattr(self, name) for name in _STORED}

    def load_state_dict(self, state: State) -> None:
        for name in _STORED:
            setattr(self, name, state[name])

    def _log_probabilities(self, outputs: Outputs) -> Tensor:
        """log g of the classes of the adapted model, (M, K)."""
        finite = outputs.logits.isfinite().all(1)
        if not finite.all():
            raise NotFinite(
                f"the {named('teacher')} predicts numbers that are not finite for {int((~finite).sum()):,} of "
                f"{len(finite):,} "
                "images",
                "pass another one",
            )
        return outputs.logits[:, self.opened.columns].log_softmax(1)


def reliability(logits: Tensor, logits_of_other_view: Tensor) -> float:
    r"""How reliable the predicted classes of a model are, by two views of each image.

    .. math::
        r = κ H,   κ = (a - e) / (1 - e)

    with a the fraction of images for which both views have the same class, e that fraction by chance, and H the entropy
    of the predicted classes in nats. A model that predicts one class agrees with itself, but has H = 0.

    Args:
        logits, logits_of_other_view: (M, K)

    Returns: r, at least 0.001
    """
    num_images, num_classes = logits.shape
    first = logits.argmax(1)
    second = logits_of_other_view.argmax(1)
    first_frequencies = first.bincount(minlength=num_classes) / num_images
    second_frequencies = second.bincount(minlength=num_classes) / num_images
    agreement = (first == second).float().mean()
    by_chance = first_frequencies @ second_frequencies
    kappa = (agreement - by_chance) / (1 - by_chance).clamp(min=SMALLEST)
    entropy = torch.special.entr((first_frequencies + second_frequencies) / 2).sum()
    return max(float(kappa * entropy), SMALLEST)
