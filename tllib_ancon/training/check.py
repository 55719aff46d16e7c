"""What ``adapt`` would do with a model and images: both are opened as it opens them, and it makes its first pass."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torchvision.utils import save_image

from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.check import CheckConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.opening.method import choose_method
from tllib_ancon.opening.open import Opened, open_images, open_model
from tllib_ancon.opening.transforms import preprocessing_of_call
from tllib_ancon.runtime import devices
from tllib_ancon.runtime.errors import BadSetting, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import Shown, counted, first_few, showable
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.first_pass import begin
from tllib_ancon.training.learning import parameter_groups

PICTURE = "images.png"
FEW_NAMES = 4
"""Names in a line at most."""


@dataclass(frozen=True)
class _DecidedSetting:
    """A setting, and the layer of :data:`~tllib_ancon.opening.defaults.LADDER` that decided it."""

    value: Any
    layer: str


@dataclass(frozen=True, repr=False)
class CheckResult(Shown):
    """What :func:`tllib_ancon.adapt` would do with a model and images; ``print`` shows it in lines.

    Attributes:
        facts: name -> a sentence: on the images, the classes, the preprocessing, the network's input and output, and
            the parameters that learn. A first pass over up to 64 images adds the frequencies of the predicted classes,
            and the share of images whose predicted class a mirror changes
        settings: name -> value and layer, of each setting that you pass or that depends on model, images or method
        notes: what was decided, and what may be wrong
        predicted: class of each of these images
        picture: file of eight images as the network gets them; None without ``out``
    """

    facts: Mapping[str, str]
    settings: Mapping[str, _DecidedSetting]
    notes: tuple[Note, ...]
    predicted: Sequence[str]
    picture: str | None = None

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The lines that ``print`` shows."""
        for name, text in self.facts.items():
            yield f"  {name:<15} {showable(text)}"
        yield "settings, and what decides each:"
        for name, setting in self.settings.items():
            yield f"  {named(name):<19} {showable(str(setting.value)):<19} {setting.layer}"
        yield "notes:"
        for note in self.notes:
            yield f"  {'!' if note.level == 'warning' else ' '} {showable(str(note))}"
        if self.picture is not None:
            yield f"images as the network gets them: {self.picture}"

    def to_dict(self) -> Record:
        """All of it, of types that JSON has."""
        return dataclasses.asdict(self)


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

    It opens both as ``adapt`` does, and predicts up to 64 images by a copy, as ``adapt`` does first. An error that
    ends ``adapt`` before its first step also ends ``check``. The model is unchanged.

    Args:
        model, images, head, output, train_transform, evaluation_transform, loader: as for :func:`tllib_ancon.adapt`
        out: folder for ``images.png``, a picture of eight images as the network gets them, each scaled to its range
        config: all settings at once
        **settings: those of :func:`tllib_ancon.adapt`. See :class:`~tllib_ancon.config.check.CheckConfig`

    Returns: facts about both, the settings, notes, and what the first pass predicts

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do)

    Example::

        >>> print(tllib_ancon.check(model, "photos/", out="looked_at"))
    """
    requested = choose_method(settings_of_call(CheckConfig, config, settings))
    requested = requested.with_paths(checkpoint=model, out=out, root=requested.root or images)
    preprocessing = preprocessing_of_call(train_transform, evaluation_transform)
    with devices.restoring_state(requested.threads):
        opened_model = open_model(model, requested, head=head, output=output)
        opened: Opened[AdaptConfig] = open_images(
            images, opened_model, requested, preprocessing=preprocessing, loader=loader
        )
        opened = opened.augmented_by(None)
        picture = None
        if requested.out is not None:
            picture = _draw(opened.probe, Path(requested.out))
        opened, predicted = begin(opened)
        names = opened.images.classes
        classes = [names[label] for label in predicted.labels.tolist()]
        facts = {
            **_facts_of_images(opened),
            **_facts_of_the_model(opened),
            "predictions": _predictions(classes, len(names)),
            "mirror": str(predicted.mirrors or "not compared: the inputs are no images"),
        }
        return CheckResult(facts, _decided_settings(opened), opened.notes, classes, picture)


def _draw(inputs: Tensor, folder: Path) -> str:
    """Draw images as a network gets them, by their first three channels or the first one; returns the file."""
    if inputs.ndim != 4:
        shape = tuple(inputs.shape[1:])
        raise BadSetting(
            f"{named('out')} draws images (C, H, W), and these inputs have shape {shape}", "leave it out", setting="out"
        )
    channels = inputs[:, :3]
    if inputs.shape[1] < 3:
        channels = inputs[:, :1]
    folder.mkdir(exist_ok=True)
    file = folder / PICTURE
    save_image(channels.float(), file, nrow=4, normalize=True, scale_each=True)
    return str(file)


def _facts_of_images(opened: Opened[AdaptConfig]) -> dict[str, str]:
    images = opened.images
    source = f"{counted(len(images), 'image')} of {images.name}"
    if images.paths:
        source += f"; the first is {images.paths[0]}"
    if images.labels is not None:
        source += "; their labels are used only to report the accuracy"
    least, most = map(float, opened.probe.aminmax())
    return {
        "images": source,
        "preprocessing": _preprocessing(opened),
        "input": f"{tuple(opened.probe.shape[1:])}, values {least:.3g} to {most:.3g}",
    }


def _facts_of_the_model(opened: Opened[AdaptConfig]) -> dict[str, str]:
    classifier = opened.classifier
    number = classifier.num_classes
    classes = f"{counted(number, 'class', 'classes')} in this order: {first_few(opened.images.classes, FEW_NAMES)}"
    if not opened.classes.are_named:
        classes += "; the model has no names for them: compare the order with its training"
    head = "no module with weights returns them: methods that need features cannot be used"
    if classifier.head_name is not None:
        head = f"head {classifier.head_name}, {classifier.features_dim} features"
    return {"classes": classes, "output": f"logits (B, {number}); {head}", "learning": _learning(opened)}


def _preprocessing(opened: Opened[AdaptConfig]) -> str:
    """Normalisation, and what declares it. The settings have sizes."""
    preprocessing = opened.transforms.preprocessing
    if preprocessing is None or isinstance(opened.transforms.evaluation, nn.Identity):
        return "none: the model gets the tensors unchanged"
    if preprocessing.transform is not None:
        return preprocessing.origin
    mean = " ".join(f"{value:.3g}" for value in preprocessing.mean)
    std = " ".join(f"{value:.3g}" for value in preprocessing.std)
    text = f"mean {mean}, std {std}"
    if preprocessing.origin:
        text += f", by {preprocessing.origin}"
    return text


def _learning(opened: Opened[AdaptConfig]) -> str:
    """Which parameters learn. What ends an adaptation before its first step raises its error."""
    parameter_groups(opened)
    method = opened.settings.method
    if not methods.method_class(method).trains:
        return f"none: {method} trains nothing"
    parameters = dict(opened.classifier.named_parameters())
    learning = [name for name, parameter in parameters.items() if parameter.requires_grad]
    return f"{len(learning)} of {len(parameters)} parameters: {first_few(learning, FEW_NAMES)}"


def _decided_settings(opened: Opened[AdaptConfig]) -> dict[str, _DecidedSetting]:
    """The settings of the user, and the settings that the model, the images or the method decide."""
    decided = {}
    for name, value in sorted(opened.settings.to_dict().items()):
        layer = opened.layers.get(name, "field")
        if value is not None and layer != "field":
            decided[name] = _DecidedSetting(value, layer)
    return decided


def _predictions(predicted: Sequence[str], num_classes: int) -> str:
    """The frequencies of the predicted classes."""
    numbers = Counter(predicted)
    shares = [f"{name} {100 * number / len(predicted):.0f} %" for name, number in numbers.most_common(FEW_NAMES)]
    classes = counted(num_classes, "class", "classes")
    return f"{', '.join(shares)}; {len(numbers)} of {classes} in {counted(len(predicted), 'image')}"
