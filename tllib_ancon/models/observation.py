"""One observed call of a network: what it returned, and the calls of the modules and operations that made it."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, softplus
from torch.utils._python_dispatch import TorchDispatchMode

from tllib_ancon.data.batches import Batch, num_rows
from tllib_ancon.models.calling import SHAPE, called
from tllib_ancon.models.outputs import two_logits

LAST_SIGMOIDS = 8
MOST_HEADS = 6


class _Call(NamedTuple):
    """One call of a module that takes vectors."""

    features: Tensor  # (B, D)
    output: Tensor  # (B, ...)


@dataclass
class Observation:
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

    def are_evidence(self, values: Tensor) -> bool:
        """Whether values (B, K) are the softplus of the output of a module with weights."""
        return any(torch.allclose(values, softplus(head)) for head in self._outputs_like(values))

    def are_dirichlet(self, values: Tensor) -> bool:
        """Whether values (B, K) are 1 plus the evidence that the output of a module with weights gives."""
        for head in self._outputs_like(values):
            if any(torch.allclose(values, 1 + evidence(head)) for evidence in (softplus, relu, torch.exp)):
                return True
        return False

    def _outputs_like(self, values: Tensor) -> list[Tensor]:
        """Outputs of the observed modules that have the shape of these values, in their precision."""
        outputs = [call.output.flatten(1).to(values.dtype) for call in self.calls.values()]
        return [output for output in outputs if output.shape == values.shape]

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


def observe(network: nn.Module, images: Batch, names: Sequence[str], advice: str = SHAPE) -> Observation:
    """Call a network in evaluation mode and watch the modules with these names; without names all that have weights."""
    observed = Observation()

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
        contexts.enter_context(eagerly())
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
    dimensions = 2
    if isinstance(module, nn.Conv2d):
        dimensions = 4
    if value.ndim != dimensions:
        return False
    return value.flatten(1).shape == (number, value.shape[1])


def eagerly() -> AbstractContextManager[Any]:
    """In this context compiled modules run their Python code, so that hooks see what they compute."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes a second
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


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
