"""Facts about a model's output, its predictions, and what an adaptation would do with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from tllib_ancon import methods
from tllib_ancon.models.classifier import BATCH_NORMS
from tllib_ancon.preflight.case import Case
from tllib_ancon.preflight.fact import FEW_NAMES, FINE, LOOK, WRONG, Fact
from tllib_ancon.preflight.rehearsal import Rehearsal
from tllib_ancon.runtime.text import counted

MOST_OF_ONE_CLASS = 0.9
"""Share of a sample that may be predicted as one class before a line is marked."""

STATISTICS = {
    "target": "statistics of the target's batches",
    "source": "the source model's statistics stay",
    "mixed": "the target's statistics, mixed with the source model's",
}


def model_output(case: Case, rehearsal: Rehearsal) -> Fact:
    """Logits, the head, and the width of the features."""
    settings = ("head", "output")
    classifier = rehearsal.classifier
    head = classifier.head_name
    values = {"classes": classifier.num_classes, "head": head, "features": classifier.features_dim}
    form = f"logits (B, {classifier.num_classes})"
    num_images = len(rehearsal.logits)
    num_not_finite = num_images - int(rehearsal.logits.isfinite().all(1).sum())
    if num_not_finite:
        text = f"{form}: NaN or infinity for {num_not_finite} of {counted(num_images, 'image')}"
        return Fact(text, values, settings, WRONG)
    if head is None:
        text = f"{form}; no module with weights returns them: methods that need features cannot be used"
        return Fact(text, values, settings, LOOK)
    return Fact(f"{form}; head {head}, {classifier.features_dim} features", values, settings)


def mirror(case: Case) -> Fact:
    """Share of images whose predicted class a mirror changes."""
    mirrors = case.mirrors
    if mirrors is None:
        return Fact("not compared: the inputs are no images, or the output is no logits", {"share": None})
    text = f"changes the predicted class of {100 * mirrors.mirror:.0f} % of {counted(mirrors.images, 'image')}"
    if mirrors.shift is not None:
        text += f", a small shift {100 * mirrors.shift:.0f} %"
    mark = FINE
    if mirrors.changes_class and case.requested.no_hflip is None:
        text += ": left and right may be different classes"
        mark = LOOK
    values = {"share": mirrors.mirror, "share_of_shift": mirrors.shift, "images": mirrors.images}
    return Fact(f"{text}; {_use_of_mirrors(case)}", values, ("no_hflip", "views"), mark)


def _use_of_mirrors(case: Case) -> str:
    if case.config.no_hflip or case.transforms.preprocessing is None:
        return "training does not mirror"
    if case.config.views == 2:
        return "training learns from the image and its mirror"
    return "training mirrors at random"


def predictions(case: Case, rehearsal: Rehearsal) -> Fact:
    """Frequencies of the predicted classes in the sample."""
    labels = rehearsal.logits.argmax(1).tolist()
    names = case.class_names
    num_images = len(labels)
    counts = Counter(labels)
    frequencies = {names[label]: count / num_images for label, count in counts.most_common()}
    most_frequent = islice(frequencies.items(), FEW_NAMES)
    listed = ", ".join(f"{name} {100 * frequency:.0f} %" for name, frequency in most_frequent)
    classes = counted(len(names), "class", "classes")
    text = f"{listed}; {len(counts)} of {classes} in {counted(num_images, 'image')}"
    if num_images > 1 and max(frequencies.values()) > MOST_OF_ONE_CLASS:
        text += "; nearly all are one class: compare the preprocessing with the model's training"
        return Fact(text, {"frequencies": frequencies}, mark=LOOK)
    return Fact(text, {"frequencies": frequencies})


def parameters(case: Case, rehearsal: Rehearsal) -> Fact:
    """Which parameters learn with these settings."""
    settings = ("adapted", "method")
    if rehearsal.learning_error:
        return Fact(rehearsal.learning_error, {"learning": [], "share": 0.0}, settings, WRONG)
    if not methods.method_class(case.config.method).trains:
        return Fact(f"none learns: {case.config.method} trains nothing", {"learning": [], "share": 0.0}, settings)
    weights = dict(rehearsal.classifier.named_parameters())
    learning = [name for name, parameter in weights.items() if parameter.requires_grad]
    fixed = [name for name, parameter in weights.items() if not parameter.requires_grad]
    total = sum(parameter.numel() for parameter in weights.values())
    share = sum(weights[name].numel() for name in learning) / total
    percent = math.floor(1000 * share) / 10  # rounded down: only all parameters are 100 %
    share_in_words = f"{percent:g} % of {total:,} weights"
    parts = [f"{len(learning)} of {len(weights)} learn ({share_in_words}), {_both_ends(learning)}"]
    if fixed:
        parts.append(f"fixed: {_both_ends(fixed)}")
    if rehearsal.num_thawed:
        parts.append(f"{rehearsal.num_thawed} of {len(rehearsal.frozen)} that you froze learn")
    elif rehearsal.frozen:
        parts.append("what you froze stays so")
    silent = rehearsal.steps.without_gradient
    mark = FINE
    if silent:
        parts.append(f"{len(silent)} get no gradient: {_both_ends(silent)}")
        mark = LOOK
    values = {"learning": learning, "fixed": fixed, "share": share, "without_gradient": list(silent)}
    return Fact("; ".join(parts), values, settings, mark)


def batch_norm(case: Case) -> Fact:
    """Number of batch-norm layers, and their statistics while adapting."""
    layers = [layer for layer in case.network.modules() if isinstance(layer, BATCH_NORMS)]
    keeping = [layer for layer in layers if layer.track_running_stats]
    values: dict[str, Any] = {"layers": len(layers), "with_statistics": len(keeping), "statistics": None}
    if not layers:
        return Fact("no layer, so no statistics are adapted", values)
    policy = case.config.batch_norm
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
