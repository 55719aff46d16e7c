"""The first pass of a source model, over a sample of the target: ``adapt`` and ``check`` conclude the same from it."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.transforms import mirror, shifted
from tllib_ancon.measures.agreement import agreement_by_chance
from tllib_ancon.models.batch_norm import estimated_statistics, layers_with_statistics
from tllib_ancon.models.calling import evaluating
from tllib_ancon.opening.open import Opened
from tllib_ancon.opening.transforms import transforms_of
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.training.not_finite import predicted_classes, require_predictions

SAMPLE = 64
"""Images of the sample at most."""

MOST_OF_ONE_CLASS = 0.9
"""Share of images that may be predicted as one class before a line says so."""

FEWEST = 8
"""Fewest images for such a note."""

LEAST_DISAGREEMENT = 0.3
"""Share of images with another class for the mirror, above which a mirror may change the class."""

TIMES_SHIFT = 2.0
"""Multiple of the disagreement under a shift that the one under a mirror must exceed: a model that errs on any change
of an image disagrees under both."""

STANDARD_ERRORS = 3.0
"""Distance from the share of unrelated predictions, in standard errors, that errors of a model cannot reach."""


class _MirrorDisagreement(NamedTuple):
    """Shares of ``images`` for which a model predicts another class after a change.

    Attributes:
        unrelated: the share under a mirror if the predictions for images and for mirrors were independent
        shift: the share under a small shift; None if the one under a mirror is too low to compare them
    """

    mirror: float
    unrelated: float
    images: int
    shift: float | None = None

    @property
    def changes_class(self) -> bool:
        """Whether the predictions differ under a mirror on more than 0.3 of the images, and either more than twice as
        often as under a shift, or more often than unrelated predictions: errors of a model cannot exchange classes."""
        if self.shift is None:
            return False
        standard_error = math.sqrt(self.unrelated * (1 - self.unrelated) / self.images)
        limit = min(TIMES_SHIFT * self.shift, self.unrelated + STANDARD_ERRORS * standard_error)
        return self.mirror > limit

    def __str__(self) -> str:
        text = f"a mirror changes the predicted class of {100 * self.mirror:.0f} % of {self.images} images"
        if self.shift is None:
            return text
        return f"{text}, a small shift of {100 * self.shift:.0f} %"


class _FirstPass(NamedTuple):
    """What a source model predicts on M images of the target.

    Attributes:
        labels: (M,) predicted classes
        mirrors: how often a mirror changes the predicted class; None if the inputs are no images
    """

    labels: Tensor
    mirrors: _MirrorDisagreement | None


def note_on_one_class(labels: Tensor, names: Sequence[str]) -> list[Note]:
    """A note if nearly all images are predicted as one class.

    Args:
        labels: (N,), negative for images without a prediction
        names: of the classes
    """
    predicted = labels[labels >= 0]
    if len(predicted) < FEWEST:
        return []
    label = int(predicted.mode().values)
    share = float((predicted == label).float().mean())
    if share <= MOST_OF_ONE_CLASS:
        return []
    text = f"the model predicts {names[label]} for {100 * share:.0f} % of {len(predicted)} images"
    action = "nearly all are one class: compare the preprocessing with the model's training"
    return [Note("one-class", text, action=action, level="warning")]


def _mirror_disagreement(
    model: nn.Module, predict: Callable[[Sequence[Tensor]], Tensor], batches: Sequence[Tensor], keeps_statistics: bool
) -> _MirrorDisagreement:
    """Compare a model's predictions for images (C, H, W) with those for their mirrors, and with those for shifts where
    a mirror changes many. The model stays unchanged.

    Batch-norm's statistics are those of each batch, as in training, unless the setting keeps the source's. By the
    source's statistics a model may predict one class for all, and no change of an image changes that."""
    if keeps_statistics or not layers_with_statistics(model):
        return _disagreement(predict, batches)
    source_state = copy.deepcopy(model.state_dict())
    with estimated_statistics(model):
        disagreement = _disagreement(predict, batches)
    model.load_state_dict(source_state)
    return disagreement


def _disagreement(predict: Callable[[Sequence[Tensor]], Tensor], batches: Sequence[Tensor]) -> _MirrorDisagreement:
    logits = predict(batches)
    classes = logits.argmax(1)
    mirrored = predict([mirror(batch) for batch in batches]).argmax(1)
    disagreement = _MirrorDisagreement(
        mirror=float((classes != mirrored).double().mean()),
        unrelated=1 - agreement_by_chance(classes, mirrored),
        images=len(classes),
    )
    if disagreement.mirror <= LEAST_DISAGREEMENT:
        return disagreement
    classes_of_shifts = predict([shifted(batch) for batch in batches]).argmax(1)
    return disagreement._replace(shift=float((classes != classes_of_shifts).double().mean()))


@torch.no_grad()
def begin(opened: Opened[AdaptConfig]) -> tuple[Opened[AdaptConfig], _FirstPass]:
    """Predict a sample of the target, and if they are images their mirrors. The model stays unchanged.

    Where a mirror changes the class, training does not mirror by default. Of many processes all get the predictions of
    the main one."""
    config = opened.settings
    model = opened.classifier.to(devices.device())
    generator = torch.Generator().manual_seed(config.seed)
    sample = opened.images.subset(torch.randperm(len(opened.images), generator=generator)[:SAMPLE])
    images = UnlabelledImages(sample, opened.transforms.evaluation)
    loader = ImageLoader(images, config.batch_size, config.workers)
    batches = [batch.to(devices.device(), non_blocking=True) for _, batch in loader]

    def predict(inputs: Sequence[Tensor]) -> Tensor:
        with evaluating(model):
            logits = torch.cat([model(batch).float() for batch in inputs])
        processes.broadcast([logits])
        return logits.cpu()

    logits = predict(batches)
    mirrors = None
    if batches[0].ndim == 4:
        mirrors = _mirror_disagreement(model, predict, batches, config.batch_norm == "source")
    labels = predicted_classes(logits)
    require_predictions(labels.numpy(), sample, "source model")
    predicted = _FirstPass(labels, mirrors)
    return _with_conclusions(opened, predicted), predicted


def _with_conclusions(opened: Opened[AdaptConfig], predicted: _FirstPass) -> Opened[AdaptConfig]:
    """The same with what the first pass decides, and its notes."""
    notes = []
    mirrors = predicted.mirrors
    mirrors_by_default = opened.transforms.second_view is mirror and opened.requested.no_hflip is None
    if mirrors is not None and mirrors.changes_class and mirrors_by_default:
        opened = _unmirrored(opened)
        action = f"images are not mirrored, as with {named('no_hflip')}; {named('no_hflip', False)} mirrors them"
        notes.append(Note("no-mirrors", str(mirrors), "no_hflip", action, "warning"))
    notes += note_on_one_class(predicted.labels, opened.images.classes)
    return opened.with_notes(notes)


def _unmirrored(opened: Opened[AdaptConfig]) -> Opened[AdaptConfig]:
    """The same, as if the user had passed ``no_hflip``."""
    settings = opened.settings.replace(no_hflip=True)
    transforms = transforms_of(settings, opened.images, opened.transforms.preprocessing)
    transforms = replace(transforms, augment=opened.transforms.augment)
    if transforms.second_view is None:
        settings = settings.replace(views=1)
    layers = {**opened.layers, "no_hflip": "images", "views": "images"}
    return replace(opened, settings=settings, transforms=transforms, layers=layers)
