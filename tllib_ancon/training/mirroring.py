"""Whether a mirror changes the class: predictions for images, for their mirrors and for small shifts of them."""

import copy
import math
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.batch_norm import estimated_statistics, has_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.outputs import evaluating, logits_of
from tllib_ancon.runtime import processes
from tllib_ancon.training import devices
from tllib_ancon.training.image_transforms import Transform, Transforms, TransformSource, transforms_of
from tllib_ancon.training.progress import Progress

Config = TypeVar("Config", bound=AdaptConfig)

COMPARED = 256
"""Images at most that are compared, drawn from the target by the seed."""

LEAST_DISAGREEMENT = 0.3
"""Share of images with another class for the mirror, above which a mirror may change the class."""

TIMES_SHIFT = 3.0
"""Multiple of the disagreement under a shift that the one under a mirror must exceed: a model that errs on any change
of an image disagrees under both."""

SHIFT = 1 / 16
"""Shift to the right and down, as a fraction of the side."""


STANDARD_ERRORS = 3.0
"""By which the disagreement under a mirror must exceed that of unrelated predictions."""


class MirrorDisagreement(NamedTuple):
    """Shares of ``images`` for which a model predicts another class after a change.

    Attributes:
        unrelated: the share under a mirror if the predictions for images and for mirrors were independent
    """

    mirror: float
    shift: float
    images: int
    unrelated: float = 1.0

    @classmethod
    def of(cls, plain: Tensor, mirrored: Tensor, moved: Tensor) -> "MirrorDisagreement":
        """The disagreement of predicted classes (N,) for images with those for their mirrors and for shifts of them."""
        num_classes = int(max(plain.max(), mirrored.max())) + 1
        both_alike = (_frequencies(plain, num_classes) * _frequencies(mirrored, num_classes)).sum()
        shares = torch.stack([(mirrored != plain).double().mean(), (moved != plain).double().mean(), 1 - both_alike])
        processes.broadcast([shares])
        mirror_share, shift_share, unrelated = shares.tolist()
        return cls(mirror_share, shift_share, len(plain), unrelated)

    @property
    def changes_class(self) -> bool:
        """Whether a mirror changes the class, by the predictions.

        Either predictions differ on more than 0.3 of the images, and more than three times as often as under a shift.
        Or they differ more often than unrelated predictions would: the mirror exchanges classes, which errors of a
        model cannot cause.
        """
        far_above_shift = self.mirror > max(LEAST_DISAGREEMENT, TIMES_SHIFT * self.shift)
        return far_above_shift or self.exchanges_classes

    @property
    def exchanges_classes(self) -> bool:
        standard_error = math.sqrt(self.unrelated * (1 - self.unrelated) / self.images)
        return self.mirror > self.unrelated + STANDARD_ERRORS * standard_error


def mirror_disagreement(
    config: AdaptConfig, model: nn.Module, target: Domain, transform: Transform
) -> MirrorDisagreement:
    """Compare a model's predictions for at most 256 images (C, H, W) with those for their mirrors and for shifts of
    them. The model is evaluated where it lies and stays unchanged.

    Where it predicts nearly one class, no change of an image changes that. Then batch-norm's statistics are those of
    each batch, as in training, if the setting uses them."""
    disagreement = _disagreement(config, model, target, transform)
    is_told_apart = disagreement.unrelated >= LEAST_DISAGREEMENT
    if is_told_apart or config.batch_norm == "source" or not has_statistics(model):
        return disagreement
    source_state = copy.deepcopy(model.state_dict())
    with estimated_statistics(model):
        disagreement = _disagreement(config, model, target, transform)
    model.load_state_dict(source_state)
    return disagreement


def _disagreement(config: AdaptConfig, model: nn.Module, target: Domain, transform: Transform) -> MirrorDisagreement:
    drawn = torch.randperm(len(target), generator=torch.Generator().manual_seed(config.seed))[:COMPARED]
    images = UnlabelledImages(target.subset(drawn), transform)
    loader = ImageLoader(images, config.batch_size or COMPARED, config.workers, range(len(drawn)))
    device = next(model.parameters(), torch.empty(0)).device
    batches = []
    with evaluating(model), torch.no_grad():
        for _, batch in loader:
            plain = batch.to(device)
            views = [plain, mirror(plain), shifted(plain)]
            batches.append(torch.stack([logits_of(model, view).argmax(1) for view in views]))
    return MirrorDisagreement.of(*torch.cat(batches, dim=1))


def _frequencies(classes: Tensor, num_classes: int) -> Tensor:
    """(N,) classes -> (K,) their relative frequencies."""
    return torch.bincount(classes, minlength=num_classes).double() / len(classes)


def shifted(images: Tensor) -> Tensor:
    """Images (B, C, H, W) moved right and down by a sixteenth of their side; the border repeats."""
    reach = max(1, round(SHIFT * images.shape[-1]))
    padded = nn.functional.pad(images, [reach, 0, reach, 0], mode="replicate")
    return padded[..., : images.shape[-2], : images.shape[-1]]


def _mirror_line(disagreement: MirrorDisagreement) -> str:
    """The line for a target whose images are not mirrored for this reason."""
    mirrored = f"{100 * disagreement.mirror:.0f} % of {disagreement.images} mirrored images"
    return (
        f"a mirror seems to change the class: the source model predicts another one for {mirrored}, and for "
        f"{100 * disagreement.shift:.0f} % of shifted ones; images are not mirrored, as with `no_hflip`. "
        "`no_hflip=False` mirrors them"
    )


def without_mirrors(
    config: AdaptConfig,
    classifier: Classifier,
    target: Domain,
    transforms: Transforms,
    transform_source: TransformSource,
) -> tuple[AdaptConfig, Transforms]:
    """The settings and transforms of an adaptation, without mirrored images where a mirror changes the class, as if
    ``no_hflip`` had been passed."""
    disagreement = mirror_disagreement(config, classifier.to(devices.device()), target, transforms.evaluation)
    if not disagreement.changes_class:
        return config, transforms
    Progress(config.quiet).line(_mirror_line(disagreement))
    return unmirrored(config, classifier, target, transform_source)


def unmirrored(
    config: Config, classifier: Classifier, target: Domain, transform_source: TransformSource
) -> tuple[Config, Transforms]:
    """The settings and transforms of an adaptation with ``no_hflip``."""
    unmirrored_config = config.replace(no_hflip=True)
    transforms = transforms_of(unmirrored_config, classifier, target, transform_source)
    if transforms.second_view is None:
        unmirrored_config = unmirrored_config.replace(views=1)
    return unmirrored_config, transforms
