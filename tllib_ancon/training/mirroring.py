"""Whether a mirror changes the class: predictions for images, for their mirrors and for small shifts of them."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.transforms import Transform, mirror
from tllib_ancon.models.batch_norm import estimated_statistics, has_statistics
from tllib_ancon.models.calling import evaluating
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.runtime import processes
from tllib_ancon.runtime.errors import named
from tllib_ancon.training import devices
from tllib_ancon.training.inputs import PreparedImages
from tllib_ancon.training.progress import Progress

COMPARED = 256
"""Images at most that are compared, drawn from the target by the seed."""

FIRST_COMPARED = 64
"""Images that are compared at first. The others follow if these leave it open whether a mirror changes the class."""

LEAST_DISAGREEMENT = 0.3
"""Share of images with another class for the mirror, above which a mirror may change the class."""

TIMES_SHIFT = 2.0
"""Multiple of the disagreement under a shift that the one under a mirror must exceed: a model that errs on any change
of an image disagrees under both. On 65 test sets of pictures it was at most 1.93 (``benchmarks/results/harm.md``)."""

SHIFT = 1 / 32
"""Shift to the right and down, as a fraction of the side: small enough to be familiar to any model."""

STANDARD_ERRORS = 3.0
"""Distance from a limit, in standard errors, that leaves no doubt on which side of it a share is."""


class MirrorDisagreement(NamedTuple):
    """Shares of ``images`` for which a model predicts another class after a change.

    Attributes:
        unrelated: the share under a mirror if the predictions for images and for mirrors were independent
        shift: the share under a small shift; None if the one under a mirror is too low to compare them
    """

    mirror: float
    unrelated: float
    images: int
    shift: float | None = None

    @classmethod
    def of(cls, classes: Tensor) -> "MirrorDisagreement":
        """The disagreement of the classes (2, N) of images and of their mirrors."""
        plain, mirrored = classes
        num_classes = int(classes.max()) + 1
        both_alike = (_frequencies(plain, num_classes) * _frequencies(mirrored, num_classes)).sum()
        return cls(_share_of_others(plain, mirrored), float(1 - both_alike), len(plain))

    @property
    def is_clearly_low(self) -> bool:
        """Whether so few predictions change under a mirror that more images would not change the answer."""
        return self.mirror < LEAST_DISAGREEMENT - STANDARD_ERRORS * self._standard_error(LEAST_DISAGREEMENT)

    @property
    def changes_class(self) -> bool:
        """Whether a mirror changes the class, by the predictions.

        They must differ on more than 0.3 of the images, and one of these must hold:

        - they differ more than twice as often as under a shift
        - they differ more often than unrelated predictions would: errors of a model cannot exchange classes
        """
        if self.shift is None:
            return False
        return self.mirror > TIMES_SHIFT * self.shift or self.exchanges_classes

    @property
    def exchanges_classes(self) -> bool:
        return self.mirror > self.unrelated + STANDARD_ERRORS * self._standard_error(self.unrelated)

    def _standard_error(self, share: float) -> float:
        """Of the share of images with another class, if it is ``share`` in the whole target."""
        return math.sqrt(share * (1 - share) / self.images)


def mirror_disagreement(
    config: AdaptConfig, model: Classifier, target: Domain, transform: Transform
) -> MirrorDisagreement:
    """Compare a model's predictions for at most 256 images (C, H, W) with those for their mirrors, and with those for
    shifts where a mirror changes many. The model is evaluated where it lies and stays unchanged.

    Batch-norm's statistics are those of each batch, as in training, unless the setting keeps the source's. By the
    source's statistics a model may predict one class for all, and no change of an image changes that."""
    if config.batch_norm == "source" or not has_statistics(model):
        return _disagreement(config, model, target, transform)
    source_state = copy.deepcopy(model.state_dict())
    with estimated_statistics(model):
        disagreement = _disagreement(config, model, target, transform)
    model.load_state_dict(source_state)
    return disagreement


def _disagreement(config: AdaptConfig, model: Classifier, target: Domain, transform: Transform) -> MirrorDisagreement:
    drawn = torch.randperm(len(target), generator=torch.Generator().manual_seed(config.seed))[:COMPARED]
    compared = target.subset(drawn[:FIRST_COMPARED])
    classes = _predicted_classes(config, model, compared, transform, (_unchanged, mirror))
    disagreement = MirrorDisagreement.of(classes)
    if len(drawn) > FIRST_COMPARED and not disagreement.is_clearly_low:
        others = target.subset(drawn[FIRST_COMPARED:])
        classes_of_others = _predicted_classes(config, model, others, transform, (_unchanged, mirror))
        classes = torch.cat([classes, classes_of_others], dim=1)
        compared = target.subset(drawn)
        disagreement = MirrorDisagreement.of(classes)
    if disagreement.mirror <= LEAST_DISAGREEMENT:
        return disagreement
    classes_of_shifts = _predicted_classes(config, model, compared, transform, (shifted,))
    return disagreement._replace(shift=_share_of_others(classes[0], classes_of_shifts[0]))


def _predicted_classes(
    config: AdaptConfig,
    model: Classifier,
    images: Domain,
    transform: Transform,
    changes: Sequence[Callable[[Tensor], Tensor]],
) -> Tensor:
    """Predicted classes (V, N) of N images under V changes; many processes get those of the main one."""
    loader = ImageLoader(UnlabelledImages(images, transform), config.batch_size or COMPARED, config.workers)
    device = next(model.parameters(), torch.empty(0)).device
    batches = []
    with evaluating(model), torch.no_grad():
        for _, batch in loader:
            plain = batch.to(device)
            classes = [model(change(plain)).argmax(1) for change in changes]
            batches.append(torch.stack(classes))
    classes_of_all = torch.cat(batches, dim=1)
    processes.broadcast([classes_of_all])
    return classes_of_all


def _unchanged(images: Tensor) -> Tensor:
    return images


def _share_of_others(classes: Tensor, changed: Tensor) -> float:
    """The share of images (N,) that have another class after a change."""
    return float((classes != changed).double().mean())


def _frequencies(classes: Tensor, num_classes: int) -> Tensor:
    """(N,) classes -> (K,) their relative frequencies."""
    return torch.bincount(classes, minlength=num_classes).double() / len(classes)


def shifted(images: Tensor) -> Tensor:
    """Images (B, C, H, W) moved right and down by a 32nd of their side; the border repeats."""
    reach = max(1, round(SHIFT * images.shape[-1]))
    padded = nn.functional.pad(images, [reach, 0, reach, 0], mode="replicate")
    return padded[..., : images.shape[-2], : images.shape[-1]]


def _mirror_line(disagreement: MirrorDisagreement) -> str:
    """The line for a target whose images are not mirrored for this reason."""
    assert disagreement.shift is not None
    mirrored = f"{100 * disagreement.mirror:.0f} % of {disagreement.images} mirrored images"
    return (
        f"a mirror seems to change the class: the source model predicts another one for {mirrored}, and for "
        f"{100 * disagreement.shift:.0f} % of shifted ones; images are not mirrored, as with {named('no_hflip')}. "
        f"{named('no_hflip', False)} mirrors them"
    )


def decide_mirrors(prepared: PreparedImages[AdaptConfig], classifier: Classifier) -> PreparedImages[AdaptConfig]:
    """The images of an adaptation. Where a mirror changes the class, they are those with ``no_hflip``."""
    classifier.to(devices.device())
    disagreement = mirror_disagreement(prepared.config, classifier, prepared.domain, prepared.transforms.evaluation)
    if not disagreement.changes_class:
        return prepared
    Progress(prepared.config.quiet).line(_mirror_line(disagreement))
    return prepared.unmirrored(classifier)
