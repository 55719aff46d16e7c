"""The first pass of a source model, over a sample of the target: ``adapt`` and ``check`` conclude the same from it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.calling import evaluating
from tllib_ancon.opening.open import Opened
from tllib_ancon.opening.transforms import transforms_of
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.notes import Note
from tllib_ancon.training.mirroring import MirrorDisagreement, mirror_disagreement
from tllib_ancon.training.not_finite import predicted_classes, require_predictions

SAMPLE = 64
"""Images of the sample at most."""

MOST_OF_ONE_CLASS = 0.9
"""Share of images that may be predicted as one class before a line says so."""

FEWEST = 8
"""Fewest images for such a note."""

NEARLY_ONE_CLASS = "nearly all are one class: compare the preprocessing with the model's training"


class FirstPass(NamedTuple):
    """What a source model predicts on M images of the target.

    Attributes:
        labels: (M,) predicted classes
        mirrors: how often a mirror changes the predicted class; None if the inputs are no images
    """

    labels: Tensor
    mirrors: MirrorDisagreement | None


def note_on_one_class(labels: Tensor, names: Sequence[str] | None = None, model: str = "the model") -> list[Note]:
    """A note if nearly all images are predicted as one class.

    Args:
        labels: (N,), negative for images without a prediction
        names: of the classes. Default: their numbers
        model: what predicts them
    """
    predicted = labels[labels >= 0]
    if len(predicted) < FEWEST:
        return []
    label = int(predicted.mode().values)
    share = float((predicted == label).float().mean())
    if share <= MOST_OF_ONE_CLASS:
        return []
    name = str(label) if names is None else names[label]
    text = f"{model} predicts {name} for {100 * share:.0f} % of {len(predicted)} images"
    return [Note("one-class", text, action=NEARLY_ONE_CLASS, level="warning")]


@torch.no_grad()
def begin(opened: Opened[AdaptConfig]) -> tuple[Opened[AdaptConfig], FirstPass]:
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
        mirrors = mirror_disagreement(model, predict, batches, config.batch_norm == "source")
    labels = predicted_classes(logits)
    require_predictions(labels.numpy(), sample, "source model")
    predicted = FirstPass(labels, mirrors)
    return _with_conclusions(opened, predicted), predicted


def _with_conclusions(opened: Opened[AdaptConfig], predicted: FirstPass) -> Opened[AdaptConfig]:
    """The same with what the first pass decides, and its notes."""
    notes = []
    mirrors = predicted.mirrors
    mirrors_by_default = opened.transforms.second_view is mirror and opened.requested.no_hflip is None
    if mirrors is not None and mirrors.changes_class and mirrors_by_default:
        opened = _unmirrored(opened)
        notes.append(Note("no-mirrors", mirrors.line(), "no_hflip", level="warning"))
    notes += note_on_one_class(predicted.labels, opened.images.classes, "the source model")
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
