"""The first pass of a source model, over a sample of the target: ``adapt`` and ``check`` conclude the same from it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.transforms import Transform, mirror
from tllib_ancon.models.calling import evaluating
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.opening.open import Opened
from tllib_ancon.runtime import devices, processes
from tllib_ancon.runtime.notes import Note
from tllib_ancon.training.mirroring import MirrorDisagreement, mirror_disagreement

SAMPLE = 64
"""Images of the sample at most."""

MOST_OF_ONE_CLASS = 0.9
"""Share of images that may be predicted as one class before a line says so."""

FEWEST = 8
"""Images of which a line says so."""

NEARLY_ONE_CLASS = "nearly all are one class: compare the preprocessing with the model's training"


class FirstPass(NamedTuple):
    """What a source model predicts on M images of the target.

    Attributes:
        logits: (M, K), on the CPU
        mirrors: how often a mirror changes the predicted class; None if the inputs are no images
    """

    logits: Tensor
    mirrors: MirrorDisagreement | None

    def frequencies(self) -> list[tuple[int, float]]:
        """Predicted classes and the share of images of each, from the most frequent on."""
        shares = self.logits.argmax(1).bincount() / len(self.logits)
        order = shares.argsort(descending=True, stable=True)
        return [(int(label), float(shares[label])) for label in order if shares[label] > 0]

    @property
    def is_nearly_one_class(self) -> bool:
        return note_on_one_class(self.logits.argmax(1)) is not None

    def note(self, names: Sequence[str]) -> Note | None:
        """The note on predictions of nearly one class; ``names`` are those of the classes."""
        if not self.logits.isfinite().all():
            return None
        return note_on_one_class(self.logits.argmax(1), names, "the source model")


def note_on_one_class(labels: Tensor, names: Sequence[str] | None = None, model: str = "the model") -> Note | None:
    """Say if nearly all images are predicted as one class.

    Args:
        labels: (N,), negative for images without a prediction
        names: of the classes. Default: their numbers
        model: what predicts them
    """
    predicted = labels[labels >= 0]
    if len(predicted) < FEWEST:
        return None
    label = int(predicted.mode().values)
    share = float((predicted == label).float().mean())
    if share <= MOST_OF_ONE_CLASS:
        return None
    name = str(label) if names is None else names[label]
    text = f"{model} predicts {name} for {100 * share:.0f} % of {len(predicted)} images"
    return Note("one-class", text, action=NEARLY_ONE_CLASS, level="warning")


def begin(opened: Opened[AdaptConfig]) -> tuple[Opened[AdaptConfig], FirstPass]:
    """Make the first pass. Where a mirror changes the class, training does not mirror by default."""
    predicted = first_pass(opened.settings, opened.classifier, opened.images, opened.transforms.evaluation)
    notes = []
    mirrors = predicted.mirrors
    mirrors_by_default = opened.transforms.second_view is mirror and opened.requested.no_hflip is None
    if mirrors is not None and mirrors.changes_class and mirrors_by_default:
        opened = _unmirrored(opened)
        notes.append(Note("no-mirrors", mirrors.line(), "no_hflip", level="warning"))
    one_class = predicted.note(opened.images.classes)
    if one_class is not None:
        notes.append(one_class)
    return opened.with_notes(notes), predicted


def _unmirrored(opened: Opened[AdaptConfig]) -> Opened[AdaptConfig]:
    """The same, as if the user had passed ``no_hflip``."""
    settings = opened.settings.replace(no_hflip=True)
    transforms = opened.transform_rule.transforms_of(settings, opened.classifier, opened.images)
    if transforms.second_view is None:
        settings = settings.replace(views=1)
    return replace(opened, settings=settings, transforms=transforms)


def sample_of(target: ImageSource, seed: int) -> ImageSource:
    """At most 64 images, drawn by the seed."""
    generator = torch.Generator().manual_seed(seed)
    return target.subset(torch.randperm(len(target), generator=generator)[:SAMPLE])


@torch.no_grad()
def first_pass(config: AdaptConfig, model: Classifier, target: ImageSource, transform: Transform) -> FirstPass:
    """Predict a sample of the target, and if they are images their mirrors. The model stays unchanged.

    Of many processes all get the predictions of the main one."""
    model.to(devices.device())
    sample = sample_of(target, config.seed)
    loader = ImageLoader(UnlabelledImages(sample, transform), config.batch_size or SAMPLE, config.workers)
    batches = [images.to(devices.device(), non_blocking=True) for _, images in loader]

    def predict(images: Sequence[Tensor]) -> Tensor:
        with evaluating(model):
            logits = torch.cat([model(batch).float() for batch in images])
        processes.broadcast([logits])
        return logits.cpu()

    logits = predict(batches)
    mirrors = None
    if batches[0].ndim == 4:
        mirrors = mirror_disagreement(model, predict, batches, config.batch_norm == "source")
    return FirstPass(logits, mirrors)
