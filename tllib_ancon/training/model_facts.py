"""Facts about a model's output, its predictions, and what an adaptation would do with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tllib_ancon.models.classifier import BATCH_NORMS, NetworkClassifier
from tllib_ancon.models.outputs import LogitsReader, described, place_of
from tllib_ancon.self_training.checks import are_probabilities
from tllib_ancon.training import devices
from tllib_ancon.training.adapting import SAMPLE as SCORED
from tllib_ancon.training.facts import FEW_NAMES, FINE, LOOK, WRONG, Fact, both_ends, counted, duration, storage
from tllib_ancon.training.image_facts import class_names
from tllib_ancon.training.subject import Subject, Trial, named_parameters

MOST_OF_ONE_CLASS = 0.9
"""Share of a sample that may be predicted as one class before a line is marked."""

STATISTICS = {
    "target": "statistics of the target's batches",
    "source": "the source model's statistics stay",
    "mixed": "the target's statistics, mixed with the source model's",
}


def output(subject: Subject) -> Fact:
    """Kind of output, the head, and the width of the features."""
    classifier, form = subject.classifier, _form(subject.output)
    if classifier is None or subject.sample_pass is None:
        return Fact(f"{form}: {subject.output_error}", {"kind": "other", "form": form}, ("head",), WRONG)
    logits = subject.sample_pass.logits
    head: str | None = "head"
    if isinstance(classifier, NetworkClassifier):
        head = classifier.head_name
    features = f"head {head}, {classifier.features_dim} features"
    if head is None:
        features = "no head is found: methods that need features cannot be used"
    values: dict[str, Any] = {"form": form, "head": head, "features": classifier.features_dim}
    bad = int((~logits.isfinite().all(1)).sum())
    if bad:
        text = f"{form}: NaN or infinity for {bad} of {counted(len(logits), 'image')}"
        return Fact(text, {**values, "kind": "not finite"}, ("head",), WRONG)
    reader = classifier.reader if isinstance(classifier, NetworkClassifier) else LogitsReader()
    kind, mark = _kind_of(logits, subject.output, reader)
    return Fact(f"{kind} {form}; {features}", {**values, "kind": kind.rstrip(",")}, ("head",), mark)


def _kind_of(logits: Tensor, model_output: Any, reader: LogitsReader) -> tuple[str, str]:
    if are_probabilities(logits):
        return "probabilities, and logits are expected,", WRONG
    if reader.kind == "softmax":
        return "probabilities, converted to logits,", LOOK
    if reader.kind == "sigmoid":
        return "probability of class 1, converted to a logit,", LOOK
    if reader.of_several:
        return f"several tensors, {place_of(reader.path)} taken as logits,", LOOK
    if isinstance(model_output, Tensor) and model_output.shape[1] == 1:
        return "one logit z of two classes, taken as (0, z),", FINE
    return "logits", FINE


def _form(model_output: Any) -> str:
    """The form of a model's output, with B for the number of images."""
    if isinstance(model_output, Tensor):
        return f"({', '.join(['B', *map(str, model_output.shape[1:])])})"
    if isinstance(model_output, Mapping):
        return ", ".join(f"{name} {_form(part)}" for name, part in model_output.items())
    if isinstance(model_output, tuple | list):
        return ", ".join(map(_form, model_output))
    return described(model_output)


def mirror(subject: Subject) -> Fact:
    """Share of images whose predicted class a mirror changes."""
    compared, settings = subject.disagreement, ("no_hflip", "views")
    if compared is None:
        return Fact("not compared: the inputs are no images, or the output is no logits", {"share": None})
    changed, moved = (f"{100 * share:.0f} %" for share in (compared.mirror, compared.shift))
    text = f"changes the predicted class of {changed} of {counted(compared.images, 'image')}, a small shift {moved}"
    values = {"share": compared.mirror, "share_of_shift": compared.shift, "images": compared.images}
    use = _use_of_mirrors(subject)
    if compared.changes_class and subject.given.no_hflip is None:
        return Fact(f"{text}: left and right may be different classes; {use}", values, settings, LOOK)
    return Fact(f"{text}; {use}", values, settings)


def _use_of_mirrors(subject: Subject) -> str:
    if subject.config.no_hflip or subject.transforms.preprocessing is None:
        return "training does not mirror"
    if subject.config.views == 2:
        return "training learns from the image and its mirror"
    return "training mirrors at random"


def predictions(subject: Subject) -> Fact:
    """Frequencies of the predicted classes in the sample."""
    if subject.sample_pass is None:
        return Fact("none: the output is no logits", mark=LOOK)
    labels = subject.sample_pass.logits.argmax(1).tolist()
    names, counts = class_names(subject), Counter(labels)
    shares = {names[label]: count / len(labels) for label, count in counts.most_common()}
    shown = ", ".join(f"{name} {100 * share:.0f} %" for name, share in [*shares.items()][:FEW_NAMES])
    text = f"{shown}; {len(counts)} of {counted(len(names), 'class', 'classes')} in {counted(len(labels), 'image')}"
    if len(labels) > 1 and max(shares.values()) > MOST_OF_ONE_CLASS:
        text += "; nearly all are one class: compare the preprocessing with the model's training"
        return Fact(text, {"frequencies": shares}, mark=LOOK)
    return Fact(text, {"frequencies": shares})


def parameters(subject: Subject) -> Fact:
    """Which parameters learn with these settings."""
    settings = ("adapted", "method")
    if subject.classifier is None:
        return Fact("not known: the output is no logits", settings=settings, mark=LOOK)
    if subject.learning_error:
        return Fact(subject.learning_error, {"learning": [], "share": 0.0}, settings, WRONG)
    if subject.config.method == "adabn":
        return Fact("none learns: adabn trains nothing", {"learning": [], "share": 0.0}, settings)
    weights = dict(named_parameters(subject.classifier))
    learning = [name for name, parameter in weights.items() if parameter.requires_grad]
    fixed = [name for name, parameter in weights.items() if not parameter.requires_grad]
    total = sum(parameter.numel() for parameter in weights.values())
    share = sum(weights[name].numel() for name in learning) / total
    percent = math.floor(1000 * share) / 10  # rounded down: 100 % is said of all
    parts = [f"{len(learning)} of {len(weights)} learn ({percent:g} % of {total:,} weights), {both_ends(learning)}"]
    if fixed:
        parts.append(f"fixed: {both_ends(fixed)}")
    if subject.thawed:
        parts.append(f"{subject.thawed} of {len(subject.frozen)} that you froze learn")
    elif subject.frozen:
        parts.append("what you froze stays so")
    silent = () if subject.trial is None else subject.trial.without_gradient
    values = {"learning": learning, "fixed": fixed, "share": share, "without_gradient": list(silent)}
    if silent:
        parts.append(f"{len(silent)} get no gradient: {both_ends(silent)}")
        return Fact("; ".join(parts), values, settings, LOOK)
    return Fact("; ".join(parts), values, settings)


def batch_norm(subject: Subject) -> Fact:
    """Number of batch-norm layers, and their statistics while adapting."""
    layers = [layer for layer in subject.network.modules() if isinstance(layer, BATCH_NORMS)]
    keeping = [layer for layer in layers if layer.track_running_stats]
    values: dict[str, Any] = {"layers": len(layers), "with_statistics": len(keeping), "statistics": None}
    if not layers:
        return Fact("no layer, so no statistics are adapted", values)
    values["statistics"] = subject.config.batch_norm
    text = f"{counted(len(layers), 'layer')}; {STATISTICS[subject.config.batch_norm]}"
    if len(keeping) < len(layers):
        text += f"; {len(layers) - len(keeping)} keep none and use those of the batch"
    return Fact(text, values, ("batch_norm",))


def cost(subject: Subject) -> Fact:
    """Estimated time and memory of one epoch, from two training steps."""
    trial, epochs = subject.trial, subject.config.epochs
    settings = ("batch_size", "epochs", "workers")
    if trial is None:
        return Fact("not estimated: the output is no logits", settings=settings)
    if trial.error:
        return Fact(f"a training step fails: {trial.error}", {"error": trial.error}, settings, WRONG)
    seconds, memory = _epoch_seconds(subject, trial), _training_memory(subject, trial)
    device, free = _device_and_free_memory()
    text = (
        f"an epoch takes about {duration(seconds)} and {storage(memory)} on this {device}, {counted(epochs, 'epoch')} "
        f"{duration(epochs * seconds)}; {counted(trial.steps, 'step')} of {counted(trial.batch_size, 'image')}, "
        f"{duration(trial.step_seconds)} each, loading {duration(trial.load_seconds)}"
    )
    times = {"step_seconds": trial.step_seconds, "load_seconds": trial.load_seconds}
    values = {"seconds": seconds, "bytes": memory, "steps": trial.steps, "batch_size": trial.batch_size, **times}
    if memory > free:
        text += f"; {storage(free)} are free: pass a smaller `batch_size`, and `accumulation_steps`"
        return Fact(text, values, settings, LOOK)
    return Fact(text, values, settings)


def _device_and_free_memory() -> tuple[str, int]:
    if torch.cuda.is_available():
        return "GPU", int(torch.cuda.mem_get_info()[0])
    return "CPU", devices.free_memory()


def _epoch_seconds(subject: Subject, trial: Trial) -> float:
    """Time of the steps, while other processes load images, and of the predictions after an epoch."""
    assert subject.sample_pass is not None
    scored = len(subject.target)
    if not subject.labelled:
        scored = min(scored, SCORED)
    return trial.steps * max(trial.step_seconds, trial.load_seconds) + scored * subject.sample_pass.seconds


def _training_memory(subject: Subject, trial: Trial) -> int:
    """Bytes of weights, gradients, the optimiser's averages, and what a forward pass stores."""
    weights = [*subject.network.parameters(), *subject.network.buffers()]
    learning = [parameter for parameter in subject.network.parameters() if parameter.requires_grad]
    copies = {"sgd": 2, "adamw": 3}[subject.config.optimizer]  # the gradient, and one average or two
    return sum(map(_size, weights)) + copies * sum(map(_size, learning)) + trial.activations


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
