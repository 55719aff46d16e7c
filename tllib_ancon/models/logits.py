"""Find the logits in the output of a network, and the modules that compute them, from one observed call."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tllib_ancon.data.batches import Batch, num_rows, tree_map
from tllib_ancon.models.outputs import (
    NAMES,
    SHAPE,
    Kind,
    LogitsReader,
    MultiLabelOutput,
    OtherOutput,
    Path,
    called,
    evaluating,
    output_for,
    place_of,
    takes_pixel_values,
    tensor_at,
    tensors_in,
    two_logits,
    usual_tensor,
)
from tllib_ancon.runtime.errors import UserError

ENOUGH = 8
"""Images from which one output in [0, 1] counts as a probability if no layer returns it."""

FEATURES = "pooler_output"
"""Where models of transformers without a classifier return vectors."""

LAST_SIGMOIDS = 8
MOST_HEADS = 6


class _Call(NamedTuple):
    """One call of a module that takes vectors."""

    features: Tensor  # (B, D)
    output: Tensor  # (B, ...)


class _Candidate(NamedTuple):
    """One of the tensors (B, K) in an output."""

    path: Path
    values: Tensor


@dataclass
class _Observation:
    """One call of a network in evaluation mode.

    Attributes:
        output: what it returned
        calls: calls of the modules that take vectors, by the modules' names, innermost first
        sigmoids: results of the last sigmoid operations
        identities: outputs of the calls of ``nn.Identity`` for vectors, by the modules' names
    """

    output: Any = None
    calls: dict[str, _Call] = field(default_factory=dict)
    sigmoids: deque[Tensor] = field(default_factory=lambda: deque(maxlen=LAST_SIGMOIDS))
    identities: dict[str, Tensor] = field(default_factory=dict)

    def placeholder(self, logits: Tensor) -> str:
        """The ``nn.Identity`` that returns logits which no module with weights computes; empty for none."""
        if self.heads(two_logits(logits)):
            return ""
        return next((name for name, output in self.identities.items() if output is logits), "")

    def of_sigmoid(self, values: Tensor) -> bool:
        """Whether a sigmoid computed these values."""
        return any(torch.equal(result.flatten(), values.flatten()) for result in self.sigmoids)

    def heads(self, logits: Tensor) -> list[str]:
        """Modules that return these logits (B, K), but for a factor and a shift; or heads whose mean they are."""
        outputs = {name: two_logits(call.output.flatten(1)) for name, call in self.calls.items()}
        for name, output in outputs.items():
            if _same_classes(output, logits):
                return [name]
        names = _innermost([name for name, output in outputs.items() if output.shape == logits.shape])
        for group in _groups(names):
            total = torch.stack([outputs[name] for name in group]).sum(0)
            if _same_classes(total, logits):
                return [*group]
        return []


def _innermost(names: Sequence[str]) -> list[str]:
    """The modules that contain none of the others."""
    containers = {name for name, inner in itertools.permutations(names, 2) if inner.startswith(f"{name}.")}
    return [name for name in names if name not in containers]


def _groups(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All groups of two or more of a few names, small groups first."""
    if len(names) > MOST_HEADS:
        return
    for size in range(2, len(names) + 1):
        yield from itertools.combinations(names, size)


class _Sigmoids(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remember the results of the last sigmoid operations."""

    def __init__(self, results: deque[Tensor]):
        super().__init__()  # type: ignore[no-untyped-call]
        self.results = results

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        result = operation(*arguments, **(options or {}))
        if operation.overloadpacket in (torch.ops.aten.sigmoid, torch.ops.aten.sigmoid_):
            self.results.append(result.detach())
        return result


def observe(network: nn.Module, images: Batch, names: Sequence[str], advice: str = SHAPE) -> _Observation:
    """Call a network in evaluation mode and watch the modules with these names; without names all that have weights."""
    observed = _Observation()

    def remember(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        observed.calls.pop(name, None)
        takes_vectors = bool(inputs) and _are_vectors(inputs[0], module, num_rows(images))
        if takes_vectors and isinstance(output, Tensor):
            observed.calls[name] = _Call(inputs[0].detach().flatten(1), output.detach())

    def remember_identity(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        observed.identities[name] = output

    with ExitStack() as contexts:
        for name, module in _observable(network, names).items():
            contexts.enter_context(module.register_forward_hook(partial(remember, name)))
        for name, module in _identities(network).items():
            contexts.enter_context(module.register_forward_hook(partial(remember_identity, name)))
        contexts.enter_context(_eagerly())
        contexts.enter_context(_Sigmoids(observed.sigmoids))
        observed.output = called(network, images, advice)
    return observed


def _observable(network: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    """The modules with these names; without names all inside the network that have weights."""
    if isinstance(network, torch.jit.ScriptModule):  # it takes no hooks
        return {}
    modules = dict(network.named_modules())
    if names:
        return {name: modules[name] for name in names}
    del modules[""]  # the network itself
    return {name: module for name, module in modules.items() if [*module.parameters()]}


def _identities(network: nn.Module) -> dict[str, nn.Module]:
    """Modules that return what they take, as libraries and users put them in the place of a head."""
    if isinstance(network, torch.jit.ScriptModule):  # it takes no hooks
        return {}
    return {name: module for name, module in network.named_modules() if isinstance(module, nn.Identity)}


def _are_vectors(value: Any, module: nn.Module, number: int) -> bool:
    """Whether a module takes (B, D), or a convolution (B, D, 1, 1), of this number of images."""
    if not isinstance(value, Tensor):
        return False
    dimensions = 4 if isinstance(module, nn.Conv2d) else 2
    if value.ndim != dimensions:
        return False
    return value.flatten(1).shape == (number, value.shape[1])


def _eagerly() -> AbstractContextManager[Any]:
    """In this context compiled modules run their Python code, so that hooks see what they compute."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes a second
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def find_logits(network: nn.Module, images: Batch, observed: _Observation, head: Sequence[str]) -> LogitsReader:
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
    placeholder = observed.placeholder(values) if values.ndim == 2 else ""
    return LogitsReader(path, kind, values.shape[1], len(candidates) > 1, placeholder)


def _candidates(output: Any, number: int, head: Sequence[str]) -> list[_Candidate]:
    """The tensors (B, K) in an output for a number of images; the one alone that has a library's name of logits."""
    rows = [
        _Candidate(path, tensor) for path, tensor in tensors_in(output) if tensor.ndim == 2 and len(tensor) == number
    ]
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
    network: nn.Module, images: Batch, candidates: list[_Candidate], observed: _Observation
) -> list[_Candidate]:
    """Those of several outputs from which no other is computed; logits rather than their probabilities."""
    raw_outputs = _without(candidates, _is_activation)
    dependent = _dependence(network, images, [candidate.path for candidate in raw_outputs])

    def enters(candidate: _Candidate, result: _Candidate) -> bool:
        if (candidate.path, result.path) in dependent:
            return True
        return _enters_head_of(candidate.values, result.values, observed)

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


def _enters_head_of(features: Tensor, logits: Tensor, observed: _Observation) -> bool:
    calls = [call for call in observed.calls.values() if _equal(call.output.flatten(1), logits)]
    return any(_equal(call.features, features) for call in calls)


def _equal(values: Tensor, expected: Tensor) -> bool:
    return values is not expected and values.shape == expected.shape and torch.equal(values, expected)


def _dependence(network: nn.Module, images: Batch, paths: list[Path]) -> set[tuple[Path, Path]]:
    """Pairs of paths where autograd finds that the second output is computed from the first."""
    pairs: set[tuple[Path, Path]] = set()
    with evaluating(network), torch.inference_mode(False), torch.enable_grad():
        probe = tree_map(_two_with_gradient, images)
        with _eagerly():
            output = output_for(network, probe)
        for first_path, second_path in itertools.permutations(paths, 2):
            if _depends_on(tensor_at(output, second_path), tensor_at(output, first_path)):
                pairs.add((first_path, second_path))
    return pairs


def _two_with_gradient(images: Tensor) -> Tensor:
    """The first two rows; those of floats require a gradient."""
    return images[:2].clone().requires_grad_(images.is_floating_point())


def _depends_on(result: Tensor | None, source: Tensor | None) -> bool:
    if result is None or source is None or not result.requires_grad or not source.requires_grad:
        return False
    gradients = torch.autograd.grad(result.sum(), source, retain_graph=True, allow_unused=True)
    return gradients[0] is not None


def _chosen_path(candidates: list[_Candidate], observed: _Observation, head: Sequence[str]) -> Path:
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
        raise UserError(
            f"the model returns several tensors, and none is what its module {','.join(head)} returns; name the head "
            "that returns one of them"
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
    return UserError(f"the model returns several tensors that could be its logits: {'; '.join(descriptions)}. {advice}")


def _kind_of(network: nn.Module, values: Tensor, observed: _Observation) -> Kind:
    """Whether values (B, K, ...) are logits or probabilities. Classes that do not exclude each other are an error."""
    of_sigmoid = observed.of_sigmoid(values)
    if values.shape[1] == 1:
        if of_sigmoid or _is_unexplained_probability(values, observed):
            return "sigmoid"
        return "logits"
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
        raise OtherOutput(f"the model returns {width} features and no logits, as it has no classifier; {advice}")


def _is_unexplained_probability(values: Tensor, observed: _Observation) -> bool:
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
    raise MultiLabelOutput(
        f"the model is a multi-label classifier: {reason}. Classes exclude each other here. If every image has exactly "
        f"one class, {advice}"
    )


def _same_classes(outputs: Tensor, logits: Tensor) -> bool:
    """Whether outputs are the logits (B, K) but for a common factor and a shift of each row."""
    if outputs.shape != logits.shape:
        return False
    is_finite = outputs.isfinite().all(1) & logits.isfinite().all(1)  # where a network divides by 0 it gives NaN
    if not is_finite.any():
        return False
    centred_outputs = _centred(outputs[is_finite])
    centred_logits = _centred(logits[is_finite])
    product = (centred_outputs * centred_logits).sum()
    return bool(product >= (1 - 1e-5) * centred_outputs.norm() * centred_logits.norm())


def _centred(logits: Tensor) -> Tensor:
    """Logits without their mean over classes, in float64."""
    wide = logits.double()
    return wide - wide.mean(1, keepdim=True)
