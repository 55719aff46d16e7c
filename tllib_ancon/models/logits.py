"""Find the logits in the output of a network, and what kind of numbers they are, from one observed call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.data.batches import Batch, num_rows, tree_map
from tllib_ancon.models.calling import evaluating, output_for, takes_pixel_values
from tllib_ancon.models.observation import Observation, eagerly
from tllib_ancon.models.outputs import (
    NAMES,
    Kind,
    LogitsReader,
    OtherOutput,
    Path,
    place_of,
    tensor_at,
    tensors_in,
    two_logits,
    usual_tensor,
)
from tllib_ancon.runtime.errors import BadModel, UserError

ENOUGH = 8
"""Images from which one output in [0, 1] counts as a probability if no layer returns it."""

FEATURES = "pooler_output"
"""Where models of transformers without a classifier return vectors."""


class _MultiLabelOutput(OtherOutput):
    """A model whose classes do not exclude each other."""

    methods = ("adabn",)


class _Candidate(NamedTuple):
    """One of the tensors (B, K) in an output."""

    path: Path
    values: Tensor


def find_logits(network: nn.Module, images: Batch, observed: Observation, head: Sequence[str]) -> LogitsReader:
    """Find the logits in the output of a network for images; ``head`` names the modules that return them."""
    candidates = _candidates(observed.output, num_rows(images), head)
    if len(candidates) > 1:
        path = _chosen_path(_last_computed(network, images, candidates, observed), observed, head)
    elif candidates:
        path = candidates[0].path
    else:
        path = _usual_path(observed.output)
    values = tensor_at(observed.output, path)
    if values is None or values.ndim < 2 or not values.numel() or not values.is_floating_point():
        return LogitsReader(path)
    _refuse_features(network, path, values.shape[1])
    kind = _kind_of(network, values, observed)
    placeholder = ""
    if values.ndim == 2:
        placeholder = observed.placeholder(values)
    return LogitsReader(path, kind, values.shape[1], len(candidates) > 1, placeholder)


def _candidates(output: Any, number: int, head: Sequence[str]) -> list[_Candidate]:
    """The tensors (B, K) in an output for a number of images; the one alone that has a library's name of logits."""
    rows = []
    for path, tensor in tensors_in(output):
        if tensor.ndim == 2 and len(tensor) == number:
            rows.append(_Candidate(path, tensor))
    if head:
        return rows
    for candidate in rows:
        if candidate.path in [(name,) for name in NAMES]:
            return [candidate]
    return rows


def _usual_path(output: Any) -> Path:
    usual = usual_tensor(output)
    for path, tensor in tensors_in(output):
        if tensor is usual:
            return path
    return ()


def _last_computed(
    network: nn.Module, images: Batch, candidates: list[_Candidate], observed: Observation
) -> list[_Candidate]:
    """Those of several outputs from which no other is computed; logits rather than their probabilities."""
    raw_outputs = _without(candidates, _is_activation)
    paths = [candidate.path for candidate in raw_outputs]
    dependent: set[tuple[Path, Path]] = set()  # where autograd finds that the second is computed from the first
    with evaluating(network), torch.inference_mode(False), torch.enable_grad():
        probe = tree_map(_two_with_gradient, images)
        with eagerly():
            output = output_for(network, probe)
        for first_path, second_path in itertools.permutations(paths, 2):
            if _depends_on(tensor_at(output, second_path), tensor_at(output, first_path)):
                dependent.add((first_path, second_path))

    def enters(candidate: _Candidate, result: _Candidate) -> bool:
        if (candidate.path, result.path) in dependent:
            return True
        calls = [call for call in observed.calls.values() if _equal(call.output.flatten(1), result.values)]
        return any(_equal(call.features, candidate.values) for call in calls)

    return _without(raw_outputs, enters) or raw_outputs


def _without(candidates: list[_Candidate], precedes: Callable[[_Candidate, _Candidate], bool]) -> list[_Candidate]:
    """The candidates for which the relation to no other holds."""
    excluded = {first.path for first, second in itertools.permutations(candidates, 2) if precedes(first, second)}
    return [candidate for candidate in candidates if candidate.path not in excluded]


def _is_activation(candidate: _Candidate, logits: _Candidate) -> bool:
    """Whether the values are a softmax, a log-softmax or a sigmoid of the logits."""
    values = candidate.values
    raw = logits.values
    if values is raw or values.shape != raw.shape:
        return False
    activations = (raw.softmax(1), raw.log_softmax(1), raw.sigmoid())
    return any(torch.allclose(values, activation, rtol=1e-4, atol=1e-5) for activation in activations)


def _equal(values: Tensor, expected: Tensor) -> bool:
    return values is not expected and values.shape == expected.shape and torch.equal(values, expected)


def _two_with_gradient(images: Tensor) -> Tensor:
    """The first two rows; those of floats require a gradient."""
    return images[:2].clone().requires_grad_(images.is_floating_point())


def _depends_on(result: Tensor | None, source: Tensor | None) -> bool:
    if result is None or source is None or not result.requires_grad or not source.requires_grad:
        return False
    gradients = torch.autograd.grad(result.sum(), source, retain_graph=True, allow_unused=True)
    return gradients[0] is not None


def _chosen_path(candidates: list[_Candidate], observed: Observation, head: Sequence[str]) -> Path:
    """The one output that a head returns, or that the named head returns."""
    if len(candidates) == 1 and not head:
        return candidates[0].path
    heads = {candidate.path: observed.heads(two_logits(candidate.values)) for candidate in candidates}
    if head:
        paths = [path for path, names in heads.items() if names == [*head]]
    else:
        paths = [path for path, names in heads.items() if names]
    if len(paths) == 1:
        return paths[0]
    if head and not paths:
        raise BadModel(
            f"the model returns several tensors, and none is what its module {','.join(head)} returns",
            "name the head that returns one of them",
        )
    raise _several_outputs(candidates, heads)


def _several_outputs(candidates: list[_Candidate], heads: Mapping[Path, list[str]]) -> UserError:
    """The error for a model with several outputs that could be the logits."""
    descriptions = []
    advice = "Wrap it in a module that returns one of them"
    for candidate in candidates:
        description = f"{place_of(candidate.path)} (B, {candidate.values.shape[1]})"
        name = ",".join(heads[candidate.path])
        if name:
            description += f" of its head {name}"
        descriptions.append(description)
    named = [",".join(names) for names in heads.values() if names]
    if named:
        advice += f", or in Python pass head={named[0]!r} or another of these heads"
    return BadModel(f"the model returns several tensors that could be its logits: {'; '.join(descriptions)}. {advice}")


def _kind_of(network: nn.Module, values: Tensor, observed: Observation) -> Kind:
    """Whether values (B, K, ...) are logits or probabilities. Classes that do not exclude each other are an error."""
    of_sigmoid = observed.of_sigmoid(values)
    if values.shape[1] == 1:
        if of_sigmoid or _is_unexplained_probability(values, observed):
            return "sigmoid"
        return "logits"
    if observed.are_dirichlet(values):
        return "dirichlet"
    if observed.are_evidence(values):
        return "evidence"
    kind = _kind_of_rows(values)
    _refuse_multi_label(network, values.shape[1], of_sigmoid and kind == "logits")
    return kind


def _kind_of_rows(values: Tensor) -> Kind:
    """Whether each row of values (B, K, ...) is logits, probabilities or percentages."""
    if not (values >= 0).all():
        return "logits"
    if _sum_to(1.0, values):
        return "softmax"
    if _sum_to(100.0, values):
        return "percent"
    return "logits"


def _refuse_features(network: nn.Module, path: Path, width: int) -> None:
    """Raise an error for a network that its library says has no classifier: its output are features."""
    advice = ""
    if hasattr(network, "pretrained_cfg") and getattr(network, "num_classes", None) == 0:
        if width == getattr(network, "num_features", None):
            advice = "make it by timm.create_model(NAME, num_classes=K), and load its classifier, too"
    elif takes_pixel_values(network) and path == (FEATURES,):
        advice = "load it as transformers.AutoModelForImageClassification"
    if advice:
        raise OtherOutput(f"the model returns {width} features and no logits, as it has no classifier", advice)


def _is_unexplained_probability(values: Tensor, observed: Observation) -> bool:
    """Whether one output (B, 1) varies in [0, 1] over enough images and no layer returns it."""
    if values.ndim != 2 or len(values) < ENOUGH or not _in_unit_interval(values):
        return False
    varies = bool((values != values[:1]).any())
    return varies and not observed.heads(two_logits(values))


def _in_unit_interval(values: Tensor) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())


def _sum_to(total: float, values: Tensor) -> bool:
    tolerance = 1e-3
    if values.dtype in (torch.float16, torch.bfloat16):
        tolerance = 1e-2
    differences = (values.sum(1) - total).abs()
    return bool((differences < tolerance * total).all())


def _refuse_multi_label(network: nn.Module, num_classes: int, of_sigmoids: bool) -> None:
    configs = [getattr(module, "config", None) for module in network.modules()]
    if any(getattr(config, "problem_type", None) == "multi_label_classification" for config in configs):
        reason = "its configuration has problem_type multi_label_classification"
        advice = "set model.config.problem_type = 'single_label_classification'"
    elif of_sigmoids:
        reason = f"it returns sigmoids of {num_classes} classes, which do not sum to 1"
        advice = "pass a module that returns what enters the sigmoid"
    else:
        return
    raise _MultiLabelOutput(
        f"the model is a multi-label classifier: {reason}. Classes exclude each other here. If every image has exactly "
        f"one class, {advice}"
    )
