"""Check a model with images before an adaptation: what ``adapt`` would assume of both, a line for each fact."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tllib_ancon.config.check import CheckConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.opening.open import open_images, open_model
from tllib_ancon.opening.transforms import TransformRule
from tllib_ancon.preflight.case import Case
from tllib_ancon.preflight.fact import LEGEND, WRONG, Fact
from tllib_ancon.preflight.image_facts import channels, classes, pixels, preprocessing, target_images
from tllib_ancon.preflight.model_facts import batch_norm, mirror, model_output, parameters, predictions
from tllib_ancon.preflight.tiles import PICTURE, require_pictures, write_tiles
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import Shown
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.first_pass import begin


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
        mirror: share of some images whose predicted class a mirror changes; a large one beside that of shifted images
        predictions: frequencies of the predicted classes in a sample
        parameters: which parameters learn with these settings
        batch_norm: number of batch-norm layers, and their statistics while adapting
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

    def to_dict(self) -> Record:
        """The facts by name, of types that JSON has, and the file of the picture."""
        facts: dict[str, Any] = {name: dataclasses.asdict(fact) for name, fact in self.facts.items()}
        if self.picture is not None:
            facts["picture"] = str(self.picture)
        return facts

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@recording_gradients()
def check(  # noqa: PLR0913
    model: Model | None = None,
    images: Any = None,
    *,
    head: str | None = None,
    output: Output | None = None,
    train_transform: Transform | None = None,
    evaluation_transform: Transform | None = None,
    loader: Loader | None = None,
    out: str | Path | None = None,
    config: CheckConfig | None = None,
    **settings: Any,
) -> CheckResult:
    """Check what :func:`tllib_ancon.adapt` would make of a model and images, before you adapt.

    It predicts up to 64 images by a copy, as ``adapt`` does first. The model is unchanged.

    Args:
        model, images, head, output, train_transform, evaluation_transform, loader: as for :func:`tllib_ancon.adapt`
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
    requested = settings_of_call(CheckConfig, config, settings).with_paths(checkpoint=model, out=out)
    if requested.root is None:
        requested = requested.with_paths(root=images)
    if requested.out is not None:
        require(named("out", requested.out), "matplotlib", extra="report")
    user_transforms = TransformRule.of_call(train_transform, evaluation_transform)
    with devices.restoring_state(requested.threads):
        opened_model = open_model(model, requested, head=head, output=output)
        opened = open_images(images, opened_model, requested, transforms=user_transforms, loader=loader)
        case = Case(*begin(opened))
        if requested.out is not None:
            require_pictures(Path(requested.out), case.opened.probe)
        picture = None
        if requested.out is not None:
            picture = write_tiles(Path(requested.out, PICTURE), case)
        return CheckResult(
            images=target_images(case),
            classes=classes(case),
            pixels=pixels(case),
            channels=channels(case),
            preprocessing=preprocessing(case),
            output=model_output(case),
            mirror=mirror(case),
            predictions=predictions(case),
            parameters=parameters(case),
            batch_norm=batch_norm(case),
            picture=picture,
        )
