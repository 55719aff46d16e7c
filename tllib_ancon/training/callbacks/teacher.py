"""Predictions of another model, the teacher, from which pseudo-labels are made as well."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.transforms import View, mirror, shifted
from tllib_ancon.measures.agreement import agreement_beyond_chance, agreement_by_chance
from tllib_ancon.models.batch_norm import BatchNormPolicy, layers_with_statistics
from tllib_ancon.opening.defaults import USUAL_BATCH
from tllib_ancon.opening.open import Opened
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.processes import Shard
from tllib_ancon.runtime.types import State
from tllib_ancon.self_training.method import mean_prediction
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.callbacks.scores import effective_classes
from tllib_ancon.training.passes import Passes
from tllib_ancon.training.trainer import Trainer

POWER = 3
"""Of the ratio of reliabilities in the weight. This and the two next numbers were chosen on the cells of
``benchmarks/teacher.md``."""
LEAST_RATIO = 0.5
"""Ratio of reliabilities below which a teacher does not count."""
SMALLEST = 1e-3
LARGEST_WEIGHT = 4.0
_STORED = ("log_probabilities", "reliability", "weight")


class Teacher(Callback):
    r"""Predictions of another model, which every method makes its pseudo-labels from as well.

    .. math::
        \log f(x) + w \log g(x)

    takes the place of :math:`\log f`, from which a method makes labels, votes and memories: f is the
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
        opened: the teacher, a copy, and the target as it gets it
        columns: (K,) for each class of the adapted model the class of the teacher
        adapted: the adapted model and the target
        sha256: of the teacher's weights
        notes: what was decided when it was opened
    """

    name = "teacher"
    sample_of_model: ImageLoader  # the sample as the adapted model gets it

    def __init__(
        self,
        opened: Opened[PredictConfig],
        columns: list[int],
        adapted: Opened[AdaptConfig],
        sha256: str,
        notes: Sequence[Note],
    ):
        self.opened = opened
        self.columns = columns
        self.settings = adapted.settings
        self.mirrors = adapted.transforms.second_view is mirror
        self.sha256 = sha256
        self.notes = notes
        batch_size = max(self.settings.batch_size, USUAL_BATCH)
        loaders = Passes(opened.images, self.settings.replace(batch_size=batch_size), opened.transforms).loaders
        self.adapted = loaders["adapted"]
        self.sample = loaders["sample"]
        self.chooses_weight = opened.probe.ndim == 4
        self.log_probabilities = torch.empty(0)  # (N, K), log g of the images to adapt on
        self.reliability = 0.0
        self.weight = 1.0

    def __call__(self, indices: Tensor, logits: Tensor) -> Tensor:
        """Add w log g of these images to logits (B, K)."""
        evidence = self.log_probabilities.index_select(0, indices.to(self.log_probabilities.device))
        return logits.float() + self.weight * evidence.to(logits.device)

    def begin_epoch(self, trainer: Trainer) -> None:
        """Choose w by the predictions of the adapted model, before the first step."""
        if trainer.epoch > 1 or not trainer.trains:
            return
        if self.chooses_weight:
            views = [trainer.predict(self.sample_of_model, view).logits for view in (None, shifted)]
            ratio = self.reliability / reliability(*views)
            self.weight = 0.0 if ratio < LEAST_RATIO else min(LARGEST_WEIGHT, ratio**POWER / 2)
        trainer.metrics[-1]["teacher_weight"] = self.weight
        trainer.tell(Note("teacher-weight", f"the teacher counts with the weight {self.weight:.2f}", "teacher"))

    def after_epoch(self, trainer: Trainer) -> None:
        """Predict the images to adapt on, once."""
        if trainer.epoch > 0:
            return
        model = self.opened.classifier.to(trainer.device)
        if self.settings.batch_norm != "source" and layers_with_statistics(model):
            num_images = len(Shard.of_this_process(len(self.sample.dataset)))
            BatchNormPolicy("mixed", num_images=num_images).prepare(
                model, lambda: trainer.predict(self.sample, None, model).logits
            )
        self.log_probabilities = self._log_probabilities(trainer, self.adapted)
        if self.mirrors:
            mirrored = self._log_probabilities(trainer, self.adapted, mirror)
            self.log_probabilities = mean_prediction(self.log_probabilities, mirrored)
        if self.chooses_weight:
            self.reliability = reliability(
                *(self._log_probabilities(trainer, self.sample, view) for view in (None, shifted))
            )
        model.cpu()

    def state_dict(self) -> State:
        return {name: getattr(self, name) for name in _STORED}

    def load_state_dict(self, state: State) -> None:
        for name in _STORED:
            setattr(self, name, state[name])

    def _log_probabilities(self, trainer: Trainer, images: ImageLoader, view: View | None = None) -> Tensor:
        """log g of the classes of the adapted model, (M, K)."""
        logits = trainer.predict(images, view, self.opened.classifier).logits
        return logits[:, self.columns].log_softmax(1)


def reliability(logits: Tensor, logits_of_other_view: Tensor) -> float:
    """How reliable the predicted classes of a model are, by two views of each image: r = κ H.

    κ is Cohen's kappa of the classes of both views, :func:`~tllib_ancon.measures.agreement.agreement_beyond_chance`,
    and H the entropy of the predicted classes in nats. A model that predicts one class agrees with itself, but has
    H = 0.

    Args:
        logits, logits_of_other_view: (M, K)

    Returns: r, at least 0.001
    """
    first = logits.argmax(1)
    second = logits_of_other_view.argmax(1)
    entropy = math.log(effective_classes(torch.cat([first, second])))
    by_chance = agreement_by_chance(first, second)
    return max(agreement_beyond_chance(first, second, by_chance) * entropy, SMALLEST)
