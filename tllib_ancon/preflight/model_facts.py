"""Facts about a model's output, its predictions, and what an adaptation would do with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

from tllib_ancon import methods
from tllib_ancon.models.batch_norm import require_batch_statistics
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.preflight.case import Case
from tllib_ancon.preflight.fact import FEW_NAMES, FINE, LOOK, WRONG, Fact
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import counted
from tllib_ancon.training.first_pass import NEARLY_ONE_CLASS
from tllib_ancon.training.learning import choose_adapted_parameters
from tllib_ancon.training.probing import require_gradient

STATISTICS = {
    "target": "statistics of the target's batches",
    "source": "the source model's statistics stay",
    "mixed": "the target's statistics, mixed with the source model's",
}


def model_output(case: Case) -> Fact:
    """Logits, the head, and the width of the features."""
    settings = ("head", "output")
    classifier = case.opened.classifier
    logits = case.predicted.logits
    head = classifier.head_name
    values = {"classes": classifier.num_classes, "head": head, "features": classifier.features_dim}
    form = f"logits (B, {classifier.num_classes})"
    num_images = len(logits)
    num_not_finite = num_images - int(logits.isfinite().all(1).sum())
    if num_not_finite:
        text = f"{form}: NaN or infinity for {num_not_finite} of {counted(num_images, 'image')}"
        return Fact(text, values, settings, WRONG)
    if head is None:
        text = f"{form}; no module with weights returns them: methods that need features cannot be used"
        return Fact(text, values, settings, LOOK)
    return Fact(f"{form}; head {head}, {classifier.features_dim} features", values, settings)


def mirror(case: Case) -> Fact:
    """Share of images whose predicted class a mirror changes."""
    mirrors = case.predicted.mirrors
    if mirrors is None:
        return Fact("not compared: the inputs are no images", {"share": None})
    text = f"changes the predicted class of {100 * mirrors.mirror:.0f} % of {counted(mirrors.images, 'image')}"
    if mirrors.shift is not None:
        text += f", a small shift {100 * mirrors.shift:.0f} %"
    mark = FINE
    if mirrors.changes_class and case.opened.requested.no_hflip is None:
        text += ": left and right may be different classes"
        mark = LOOK
    values = {"share": mirrors.mirror, "share_of_shift": mirrors.shift, "images": mirrors.images}
    return Fact(f"{text}; {_use_of_mirrors(case)}", values, ("no_hflip", "views"), mark)


def _use_of_mirrors(case: Case) -> str:
    if case.opened.settings.no_hflip or case.opened.transforms.preprocessing is None:
        return "training does not mirror"
    if case.opened.settings.views == 2:
        return "training learns from the image and its mirror"
    return "training mirrors at random"


def predictions(case: Case) -> Fact:
    """Frequencies of the predicted classes in the sample."""
    names = case.class_names
    num_images = len(case.predicted.logits)
    frequencies = {names[label]: frequency for label, frequency in case.predicted.frequencies()}
    most_frequent = islice(frequencies.items(), FEW_NAMES)
    listed = ", ".join(f"{name} {100 * frequency:.0f} %" for name, frequency in most_frequent)
    classes = counted(len(names), "class", "classes")
    text = f"{listed}; {len(frequencies)} of {classes} in {counted(num_images, 'image')}"
    if case.predicted.is_nearly_one_class:
        return Fact(f"{text}; {NEARLY_ONE_CLASS}", {"frequencies": frequencies}, mark=LOOK)
    return Fact(text, {"frequencies": frequencies})


def parameters(case: Case) -> Fact:
    """Which parameters learn with these settings."""
    settings = ("adapted", "method")
    classifier = case.opened.classifier
    if not methods.method_class(case.opened.settings.method).trains:
        text = f"none learns: {case.opened.settings.method} trains nothing"
        return Fact(text, {"learning": [], "share": 0.0}, settings)
    weights = dict(classifier.named_parameters())
    num_frozen = sum(not parameter.requires_grad for parameter in weights.values())
    try:
        num_thawed = choose_adapted_parameters(classifier, case.opened.settings.adapted)
        require_gradient(classifier, case.opened.probe, case.opened.settings.adapted)
    except UserError as error:
        return Fact(str(error), {"learning": [], "share": 0.0}, settings, WRONG)
    learning = [name for name, parameter in weights.items() if parameter.requires_grad]
    fixed = [name for name, parameter in weights.items() if not parameter.requires_grad]
    total = sum(parameter.numel() for parameter in weights.values())
    share = sum(weights[name].numel() for name in learning) / total
    percent = math.floor(1000 * share) / 10  # rounded down: only all parameters are 100 %
    share_in_words = f"{percent:g} % of {total:,} weights"
    parts = [f"{len(learning)} of {len(weights)} learn ({share_in_words}), {_both_ends(learning)}"]
    if fixed:
        parts.append(f"fixed: {_both_ends(fixed)}")
    if num_thawed:
        parts.append(f"{num_thawed} of {num_frozen} that you froze learn")
    elif num_frozen:
        parts.append("what you froze stays so")
    return Fact("; ".join(parts), {"learning": learning, "fixed": fixed, "share": share}, settings)


def batch_norm(case: Case) -> Fact:
    """Number of batch-norm layers, and their statistics while adapting."""
    layers = [layer for layer in case.opened.model.network.modules() if isinstance(layer, BATCH_NORMS)]
    keeping = [layer for layer in layers if layer.track_running_stats]
    values: dict[str, Any] = {"layers": len(layers), "with_statistics": len(keeping), "statistics": None}
    if not layers:
        return Fact("no layer, so no statistics are adapted", values)
    try:
        require_batch_statistics(case.opened.model.network, case.opened.settings.batch_size)
    except UserError as error:
        return Fact(str(error), values, ("batch_norm", "batch_size"), WRONG)
    policy = case.opened.settings.batch_norm
    values["statistics"] = policy
    if isinstance(policy, float):
        statistics = f"{STATISTICS['mixed']} with weight {policy:g}"
    else:
        statistics = STATISTICS[policy]
    text = f"{counted(len(layers), 'layer')}; {statistics}"
    if len(keeping) < len(layers):
        text += f"; {len(layers) - len(keeping)} keep none and use those of the batch"
    return Fact(text, values, ("batch_norm",))


def _both_ends(names: Sequence[str]) -> str:
    """The first and the last name."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]} to {names[-1]}"
