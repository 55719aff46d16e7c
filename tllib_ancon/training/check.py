"""Check a model with images before an adaptation: what ``adapt`` would assume of both, a line for each fact."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tllib_ancon.config.check import CheckConfig
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import Shown
from tllib_ancon.training import devices
from tllib_ancon.training.facts import LEGEND, WRONG, Fact
from tllib_ancon.training.image_facts import channels, class_names, classes, images, pixels, preprocessing
from tllib_ancon.training.model_facts import batch_norm, cost, mirror, output, parameters, predictions
from tllib_ancon.training.resolve import Transform, passed_transforms
from tllib_ancon.training.subject import Subject, choose_parameters, compare_mirrors, open_subject, predict_and_try
from tllib_ancon.training.tiles import PICTURE, require_pictures, write_tiles

FACTS: dict[str, Callable[[Subject], Fact]] = {
    fact.__name__: fact
    for fact in (
        *(images, classes, pixels, channels, preprocessing),
        *(output, mirror, predictions, parameters, batch_norm, cost),
    )
}
"""Attribute of :class:`CheckResult` -> the function of its fact."""


@dataclass(frozen=True, repr=False)
class CheckResult(Shown):
    """Facts about a model and images; ``print`` shows a line for each.

    Attributes:
        images: number and source of the images
        classes: number and order of the model's classes, beside the names that the model and the folder have
        pixels: size and range of decoded images
        channels: channels of the images and of the network's input
        preprocessing: resizing, crop and normalisation, and where they come from
        output: logits, probabilities, one logit or something else; head and features
        mirror: share of some images whose predicted class a mirror changes, beside that of shifted images
        predictions: frequencies of the predicted classes in a sample
        parameters: which parameters learn with these settings
        batch_norm: number of batch-norm layers, and their statistics while adapting
        cost: estimated time and memory of one epoch, from two training steps
        picture: file of eight images as the network gets them; None without ``out``
    """

    images: Fact
    classes: Fact
    pixels: Fact
    channels: Fact
    preprocessing: Fact
    output: Fact
    mirror: Fact
    predictions: Fact
    parameters: Fact
    batch_norm: Fact
    cost: Fact
    picture: Path | None = None

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts by name, in the order of the lines."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Fact)}

    @property
    def is_wrong(self) -> bool:
        """Whether ``adapt`` would fail."""
        return any(fact.mark == WRONG for fact in self.facts.values())

    def lines(self, only: Iterable[str] | None = None) -> list[str]:
        """The lines that ``print`` shows; ``only`` as for :meth:`Fact.line`."""
        lines = [fact.line(name, only) for name, fact in self.facts.items()]
        marks = {fact.mark for fact in self.facts.values()}
        lines += [legend for mark, legend in LEGEND.items() if mark in marks]
        if self.picture is not None:
            lines.append(f"images as the network gets them: {self.picture}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The facts by name, of types that JSON has, and the file of the picture."""
        facts: dict[str, Any] = {name: dataclasses.asdict(fact) for name, fact in self.facts.items()}
        if self.picture is not None:
            facts["picture"] = str(self.picture)
        return facts

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@recording_gradients()
def check(
    model: nn.Module | str | Path | None = None,
    images: Any = None,
    *,
    head: str | None = None,
    train_transform: Transform | None = None,
    evaluation_transform: Transform | None = None,
    out: str | Path | None = None,
    config: CheckConfig | None = None,
    **settings: Any,
) -> CheckResult:
    """Check what :func:`tllib_ancon.adapt` would make of a model and images, before you adapt.

    It predicts up to 128 images and tries two training steps on a copy. The model is unchanged.

    Args:
        model, images, head, train_transform, evaluation_transform: as for :func:`tllib_ancon.adapt`
        out: folder for ``images.png``, a picture of eight images as the network gets them, with their predicted
            classes
        config: all settings at once
        **settings: those of :func:`tllib_ancon.adapt`; each line names the settings that change it. See
            :class:`~tllib_ancon.config.check.CheckConfig`

    Returns: the facts, a line for each

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)

    Example::

        >>> print(tllib_ancon.check(model, "photos/", out="looked_at"))
    """
    if config is not None and settings:
        raise UserError(f"give `config` or single settings, not both; got `{next(iter(settings))}` besides")
    config = config or CheckConfig(**{"quiet": True, **settings})
    paths = {"checkpoint": model, "out": out, "root": images if config.root is None else None}
    config = config.replace(**{name: str(path) for name, path in paths.items() if isinstance(path, str | Path)})
    network = None if isinstance(model, str | Path) else model
    passed = passed_transforms(train_transform, evaluation_transform)
    with devices.using_processor(config.threads):
        subject = open_subject(config.replace(quiet=True), network, images, head, passed)
        if config.out is not None:
            require_pictures(Path(config.out), subject.probe)
        subject = _tried(subject)
        picture = None
        if config.out is not None:
            picture = write_tiles(Path(config.out, PICTURE), subject, class_names(subject))
        facts: dict[str, Fact] = {name: fact(subject) for name, fact in FACTS.items()}
        return CheckResult(**facts, picture=picture)


def _tried(subject: Subject) -> Subject:
    """The subject with its predictions and two training steps, if the model returns logits (B, K)."""
    classifier = subject.classifier
    if classifier is None:
        return subject
    compared = compare_mirrors(subject, classifier)
    prepared = dataclasses.replace(subject, **choose_parameters(subject, classifier), **compared)
    sample_pass, trial = predict_and_try(prepared, classifier)
    return dataclasses.replace(prepared, sample_pass=sample_pass, trial=trial)
