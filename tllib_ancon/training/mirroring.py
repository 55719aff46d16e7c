"""Whether a mirror changes the class: predictions for images, for their mirrors and for small shifts of them."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from tllib_ancon.data.transforms import mirror, shifted
from tllib_ancon.models.batch_norm import estimated_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.runtime.errors import named

LEAST_DISAGREEMENT = 0.3
"""Share of images with another class for the mirror, above which a mirror may change the class."""
TIMES_SHIFT = 2.0
"""Multiple of the disagreement under a shift that the one under a mirror must exceed: a model that errs on any change
of an image disagrees under both. On 65 test sets of pictures it was at most 1.93 (``benchmarks/tried.md``)."""
STANDARD_ERRORS = 3.0
"""Distance from the share of unrelated predictions, in standard errors, that errors of a model cannot reach."""
Predict = Callable[[Sequence[Tensor]], Tensor]
"""Batches of images -> their N logits (N, K)."""


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

    @property
    def changes_class(self) -> bool:
        """Whether the predictions differ under a mirror on more than 0.3 of the images, and either more than twice as
        often as under a shift, or more often than unrelated predictions: errors of a model cannot exchange classes."""
        if self.shift is None:
            return False
        standard_error = math.sqrt(self.unrelated * (1 - self.unrelated) / self.images)
        limit = min(TIMES_SHIFT * self.shift, self.unrelated + STANDARD_ERRORS * standard_error)
        return self.mirror > limit

    def line(self) -> str:
        """The line for a target whose images are not mirrored for this reason."""
        assert self.shift is not None
        return (
            f"a mirror seems to change the class: the source model predicts another one for {100 * self.mirror:.0f} % "
            f"of {self.images} mirrored images, and for {100 * self.shift:.0f} % of shifted ones; images are not "
            f"mirrored, as with {named('no_hflip')}. {named('no_hflip', False)} mirrors them"
        )


def mirror_disagreement(
    model: Classifier, predict: Predict, batches: Sequence[Tensor], keeps_statistics: bool
) -> MirrorDisagreement:
    """Compare a model's predictions for images (C, H, W) with those for their mirrors, and with those for shifts where
    a mirror changes many. The model stays unchanged.

    Batch-norm's statistics are those of each batch, as in training, unless the setting keeps the source's. By the
    source's statistics a model may predict one class for all, and no change of an image changes that."""
    if keeps_statistics or not has_statistics(model):
        return _disagreement(predict, batches)
    source_state = copy.deepcopy(model.state_dict())
    with estimated_statistics(model):
        disagreement = _disagreement(predict, batches)
    model.load_state_dict(source_state)
    return disagreement


def _disagreement(predict: Predict, batches: Sequence[Tensor]) -> MirrorDisagreement:
    logits = predict(batches)
    num_images, num_classes = logits.shape
    classes = logits.argmax(1)
    mirrored = predict([mirror(batch) for batch in batches]).argmax(1)
    both_alike = classes.bincount(minlength=num_classes) @ mirrored.bincount(minlength=num_classes)
    disagreement = MirrorDisagreement(
        mirror=float((classes != mirrored).double().mean()),
        unrelated=1 - float(both_alike) / num_images**2,
        images=num_images,
    )
    if disagreement.mirror <= LEAST_DISAGREEMENT:
        return disagreement
    classes_of_shifts = predict([shifted(batch) for batch in batches]).argmax(1)
    return disagreement._replace(shift=float((classes != classes_of_shifts).double().mean()))
