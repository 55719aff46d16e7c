"""The door of a source model's training: a backbone, labelled images of the source, and unlabelled ones of a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.image_source import ImageSource, numbered
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.data.readers import Loader
from tllib_ancon.models.networks import create_backbone, parse_options
from tllib_ancon.models.references import ModelRef
from tllib_ancon.opening.classes import MOST_LISTED, ClassMap
from tllib_ancon.opening.defaults import Facts, network_settings, resolve
from tllib_ancon.opening.images import open_by_settings, with_cache
from tllib_ancon.opening.transforms import Transforms, preprocessing_for, refuse_unread_settings, transforms_of
from tllib_ancon.runtime.errors import BadImages, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import first_few
from tllib_ancon.runtime.types import Options
from tllib_ancon.toolkit.toolkit import Toolkit


@dataclass(frozen=True)
class Pretraining:
    """What a source model is trained with.

    Attributes:
        settings: the settings, with every default filled in
        backbone: with pre-trained or random weights
        source: labelled images
        transforms: how images become tensors
        probe: a few images as the backbone gets them
        target: for CDAN and MDD images of the target, with labels for the record alone, if it has some
        notes: what was decided
    """

    settings: PretrainConfig
    backbone: Any
    source: ImageSource
    transforms: Transforms
    probe: Tensor
    target: ImageSource | None = None
    notes: tuple[Note, ...] = ()


def open_pretraining(
    settings: PretrainConfig, toolkit: Toolkit | None, loader: Loader | None, recorded: Options
) -> Pretraining:
    """Open all that a source model is trained with.

    Args:
        settings: those of the user
        toolkit: of CDAN and MDD
        loader: as for :func:`tllib_ancon.adapt`
        recorded: ``config.json`` of the run that continues; empty for a new one
    """
    untrained = ModelRef()
    source = open_by_settings(settings, settings.source, loader=loader)
    if source.labels is None:
        raise BadImages(
            f"domain {source.name}: its images have no labels, and a source domain needs them",
            f"name another as {named('source')}",
        )
    network = network_settings(settings, untrained)
    options = parse_options(network["arch_option"])
    backbone = create_backbone(network["arch"], not settings.scratch, settings.pretrained_weights, options, toolkit)
    refuse_unread_settings(settings, source, None)
    declared = preprocessing_for(backbone, settings)
    filled, _ = resolve(settings, Facts(untrained, backbone, source, declared, recorded))
    transforms = transforms_of(filled, source, declared)
    notes = [*source.notes(), *_notes_on_classes(source)]
    cached = with_cache(filled, source, transforms, notes)
    probe = UnlabelledImages(cached, transforms.evaluation).probe()
    opened = Pretraining(filled, backbone, cached, transforms, probe)
    if toolkit is not None:
        target = open_by_settings(settings, settings.target, classes=source.classes, loader=loader)
        notes += target.notes()
        labelled, _ = ClassMap(source.num_classes, source.classes).label(target)
        opened = replace(opened, target=with_cache(opened.settings, labelled, transforms, notes))
    return replace(opened, notes=tuple(notes))


def _notes_on_classes(source: ImageSource) -> list[Note]:
    """A note on labels without names that no image has: one wrong label adds many classes."""
    labels = {*map(str, source.labels if source.labels is not None else ())}
    missing = [name for name in numbered(source.num_classes) if name not in labels]
    if not missing or [*source.classes] != numbered(source.num_classes):
        return []
    text = (
        f"{source.num_classes} classes: the largest label is {source.num_classes - 1}, and no image has label "
        f"{first_few(missing, MOST_LISTED)}"
    )
    return [Note("number-of-classes", text, action="correct the list if a label is wrong", level="warning")]
