"""What a network returns for images, and where its logits are in it."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tllib_ancon.data.batches import Batch, num_rows, shape_text, tree_map
from tllib_ancon.runtime.errors import UserError, one_line

Kind = Literal["logits", "softmax", "sigmoid"]
Path = tuple[str | int, ...]
"""Keys, positions or names of attributes that lead from an output to a tensor in it."""

NAMES = ("logits", "out")
"""Under which libraries return logits in an output object or a dict."""

ENOUGH = 8
"""Images from which one output in [0, 1] counts as a probability if no layer returns it."""

LAST_SIGMOIDS = 8
MOST_HEADS = 6


class OtherOutput(UserError):
    """A model that does not return logits (B, K)."""


class MultiLabelOutput(OtherOutput):
    """A model whose classes do not exclude each other."""


@dataclass(frozen=True)
class LogitsReader:
    """Where logits are in the output of a network.

    Attributes:
        path: leads to them; empty if the output is a tensor
        kind: whether they are logits, or probabilities of a softmax or a sigmoid
        width: classes K; 1 for one logit of a binary classifier
        of_several: whether the output has other tensors that could be logits
    """

    path: Path = ()
    kind: Kind = "logits"
    width: int = 0
    of_several: bool = False

    @property
    def notes(self) -> list[str]:
        """A line for each fact about the output that the user should know."""
        lines = []
        if self.of_several:
            lines.append(
                f"the model returns several tensors; {place_of(self.path)} is taken for its logits, (B, {self.width})"
            )
        if self.kind == "softmax":
            lines.append("the model returns probabilities that sum to 1; their logarithms are used as logits")
        elif self.kind == "sigmoid":
            lines.append("the model returns the probability of class 1; it is converted to a logit")
        return lines

    def raw(self, output: Any) -> Any:
        """The tensor of one column for each output unit, or the output itself without such a tensor.

        An output in training mode may have another form: the tensor of K columns counts, else the first.
        """
        value = tensor_at(output, self.path)
        if value is None:
            fitting = [tensor for _, tensor in tensors_in(output) if tensor.ndim == 2 and tensor.shape[1] == self.width]
            value = fitting[0] if len(fitting) == 1 else usual_tensor(output)
        return logits_from(value, self.kind) if isinstance(value, Tensor) else value

    def __call__(self, output: Any) -> Any:
        logits = self.raw(output)
        fits = isinstance(logits, Tensor) and logits.ndim >= 2 and logits.is_floating_point()
        return two_logits(logits) if fits else logits


def logits_from(values: Tensor, kind: Kind) -> Tensor:
    """Logits of a softmax or of a sigmoid whose probabilities are the values, in float32 or float64."""
    if kind == "logits":
        return values
    probabilities = values if values.dtype == torch.float64 else values.float()
    precision = torch.finfo(probabilities.dtype)
    if kind == "softmax":
        return probabilities.clamp(min=precision.tiny).log()
    return probabilities.logit(eps=precision.eps)


def two_logits(logits: Tensor) -> Tensor:
    """One logit z of a binary classifier as two, (0, z); others unchanged."""
    return torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits


def usual_tensor(output: Any) -> Any:
    """What most libraries return as logits: ``logits`` of an object or a dict, a tuple's first, or the output."""
    for name in NAMES:
        value = tensor_at(output, (name,))
        if isinstance(value, Tensor):
            return value
    return output[0] if isinstance(output, tuple | list) and output else output


def tensor_at(output: Any, path: Path) -> Any:
    """The tensor to which a path leads, else None."""
    value = output
    for key in path:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(key, int):
            value = value[key] if isinstance(value, Sequence) and len(value) > key else None
        else:
            value = getattr(value, key, None)
    return value if isinstance(value, Tensor) else None


def tensors_in(output: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Tensors of floats in an output and the paths to them."""
    items: Any = ()
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield path, output
    elif isinstance(output, Mapping):
        items = output.items()
    elif isinstance(output, tuple | list):
        items = enumerate(output)
    elif hasattr(output, "__dict__") and not isinstance(output, nn.Module | type):
        items = vars(output).items()
    for key, item in items:
        yield from tensors_in(item, (*path, key))


def place_of(path: Path) -> str:
    """A path as Python writes it after the output: ``[1]``, ``['scores']``, ``[0]['a']``."""
    return "".join(f"[{key!r}]" for key in path)


@dataclass
class Observation:
    """One call of a network in evaluation mode.

    Attributes:
        output: what it returned
        calls: inputs (B, D) and outputs (B, ...) of the modules that take vectors, innermost first
        sigmoids: results of the last sigmoid operations
    """

    output: Any = None
    calls: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    sigmoids: deque[Tensor] = field(default_factory=lambda: deque(maxlen=LAST_SIGMOIDS))

    def of_sigmoid(self, values: Tensor) -> bool:
        """Whether a sigmoid computed these values."""
        return any(torch.equal(result.flatten(), values.flatten()) for result in self.sigmoids)

    def heads(self, logits: Tensor) -> list[str]:
        """Modules that return these logits (B, K), but for a factor and a shift; or heads whose mean they are."""
        outputs = {name: two_logits(output.flatten(1)) for name, (_, output) in self.calls.items()}
        for name, output in outputs.items():
            if same_classes(output, logits):
                return [name]
        shaped = [name for name, output in outputs.items() if output.shape == logits.shape]
        inner = [name for name in shaped if not any(other.startswith(f"{name}.") for other in shaped)]
        if len(inner) > MOST_HEADS:
            return []
        for count in range(2, len(inner) + 1):
            for names in itertools.combinations(inner, count):
                if same_classes(torch.stack([outputs[name] for name in names]).sum(0), logits):
                    return [*names]
        return []


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


SHAPE = "; pass images of the shape that it takes"


def observe(network: nn.Module, images: Batch, names: Sequence[str] | None = None, advice: str = SHAPE) -> Observation:
    """Call a network in evaluation mode and watch its modules with weights, or those with these names."""
    modules = dict(network.named_modules())
    if names is None:
        names = [name for name, part in modules.items() if name and any(True for _ in part.parameters())]
    if isinstance(network, torch.jit.ScriptModule):  # it takes no hooks
        names = []
    observed = Observation()

    def remember(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        shape = inputs[0].shape if inputs and isinstance(inputs[0], Tensor) else torch.Size()
        flat = len(shape) == (4 if isinstance(module, nn.Conv2d) else 2) and shape[1:].numel() == shape[1]
        observed.calls.pop(name, None)
        if flat and shape[0] == num_rows(images) and isinstance(output, Tensor):
            observed.calls[name] = inputs[0].detach().flatten(1), output.detach()

    with ExitStack() as contexts:
        for name in names:
            contexts.enter_context(modules[name].register_forward_hook(partial(remember, name)))
        contexts.enter_context(_eagerly())
        contexts.enter_context(_Sigmoids(observed.sigmoids))
        observed.output = called(network, images, advice)
    return observed


def _eagerly() -> AbstractContextManager[Any]:
    """In this context compiled modules run their Python code, so that hooks see what they compute."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes a second
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def called(network: nn.Module, images: Batch, advice: str = SHAPE) -> Any:
    """Output of a network for images in evaluation mode, without gradients; an error ends with the ``advice``."""
    try:
        with evaluating(network), torch.no_grad():
            return output_for(network, images)
    except Exception as error:  # any error can come out of a user's own network
        shape = shape_text(images)
        raise UserError(f"the model cannot be called on images of shape {shape} ({one_line(error)}){advice}") from error


def find_logits(network: nn.Module, images: Batch, observed: Observation, head: Sequence[str] = ()) -> LogitsReader:
    """Find the logits in what a network returned for images; ``head`` names the modules that return them."""
    output = observed.output
    count = num_rows(images)
    rows = [(path, tensor) for path, tensor in tensors_in(output) if tensor.ndim == 2 and len(tensor) == count]
    named = [path for path, _ in rows if path in [(name,) for name in NAMES]]
    if len(rows) > 1 and named and not head:
        rows = [(path, tensor) for path, tensor in rows if path == named[0]]
    if len(rows) > 1:
        candidates = _last_ones(network, images, rows, observed)
        path = _chosen_path(candidates, observed, head)
    elif rows:
        path = rows[0][0]
    else:
        value = usual_tensor(output)
        path = next((where for where, tensor in tensors_in(output) if tensor is value), ())
    values = tensor_at(output, path)
    if values is None or values.ndim < 2 or not values.numel() or not values.is_floating_point():
        return LogitsReader(path)
    kind = _kind_of(network, values, observed)
    return LogitsReader(path, kind, values.shape[1], len(rows) > 1)


def _last_ones(
    network: nn.Module, images: Batch, rows: list[tuple[Path, Tensor]], observed: Observation
) -> list[tuple[Path, Tensor]]:
    """Those of several outputs from which no other is computed; logits rather than their probabilities."""
    kept = [
        (path, values)
        for path, values in rows
        if not any(_is_activation(values, other) for _, other in rows if other is not values)
    ]
    depends = _dependence(network, images, [path for path, _ in kept])
    inputs = [
        path
        for path, values in kept
        for other_path, other in kept
        if (path, other_path) in depends or _enters_head_of(values, other, observed)
    ]
    return [(path, values) for path, values in kept if path not in inputs] or kept


def _is_activation(values: Tensor, other: Tensor) -> bool:
    """Whether the values are a softmax, a log-softmax or a sigmoid of the other tensor."""
    if values.shape != other.shape:
        return False
    results = other.softmax(1), other.log_softmax(1), other.sigmoid()
    return any(torch.allclose(values, result, rtol=1e-4, atol=1e-5) for result in results)


def _enters_head_of(features: Tensor, logits: Tensor, observed: Observation) -> bool:
    entering = [inputs for inputs, outputs in observed.calls.values() if _equal(outputs.flatten(1), logits)]
    return any(_equal(inputs, features) for inputs in entering)


def _equal(values: Tensor, other: Tensor) -> bool:
    return values is not other and values.shape == other.shape and torch.equal(values, other)


def _dependence(network: nn.Module, images: Batch, paths: list[Path]) -> set[tuple[Path, Path]]:
    """Pairs of paths where autograd finds that the second output is computed from the first."""
    pairs: set[tuple[Path, Path]] = set()
    with evaluating(network), torch.inference_mode(False), torch.enable_grad():
        probe = tree_map(_two_with_gradient, images)
        with _eagerly():
            output = output_for(network, probe)
        values = {path: tensor_at(output, path) for path in paths}
        for path, other_path in itertools.permutations(paths, 2):
            before, after = values[path], values[other_path]
            if before is None or after is None or not (before.requires_grad and after.requires_grad):
                continue
            gradient = torch.autograd.grad(after.sum(), before, retain_graph=True, allow_unused=True)[0]
            if gradient is not None:
                pairs.add((path, other_path))
    return pairs


def _two_with_gradient(images: Tensor) -> Tensor:
    """The first two rows; those of floats require a gradient."""
    return images[:2].clone().requires_grad_(images.is_floating_point())


def _chosen_path(candidates: list[tuple[Path, Tensor]], observed: Observation, head: Sequence[str]) -> Path:
    """The one output that a head returns, or that the named head returns."""
    if len(candidates) == 1 and not head:
        return candidates[0][0]
    heads = {path: observed.heads(two_logits(values)) for path, values in candidates}
    with_head = [path for path, names in heads.items() if names and (not head or names == [*head])]
    if len(with_head) == 1:
        return with_head[0]
    if head and not with_head:
        raise UserError(
            f"the model returns several tensors, and none is what its module {','.join(head)} returns; name the head "
            "that returns one of them"
        )
    shown = []
    for path, values in candidates:
        of_head = f" of its head {','.join(heads[path])}" if heads[path] else ""
        shown.append(f"{place_of(path)} (B, {values.shape[1]}){of_head}")
    example = next((names for names in heads.values() if names), None)
    in_python = "" if example is None else f", or in Python pass head={','.join(example)!r} or another of these heads"
    raise UserError(
        f"the model returns several tensors that could be its logits: {'; '.join(shown)}. Wrap it in a module that "
        f"returns one of them{in_python}"
    )


def _kind_of(network: nn.Module, values: Tensor, observed: Observation) -> Kind:
    """Whether values (B, K, ...) are logits or probabilities. Classes that do not exclude each other are an error."""
    of_sigmoid = observed.of_sigmoid(values)
    in_range = bool(((values >= 0) & (values <= 1)).all())
    sums_to_one = in_range and bool(((values.sum(1) - 1).abs() < _tolerance(values)).all())
    if values.shape[1] > 1:
        _refuse_multi_label(network, values.shape[1], of_sigmoid and not sums_to_one)
        return "softmax" if sums_to_one else "logits"
    if of_sigmoid:
        return "sigmoid"
    varies = bool((values != values[:1]).any())
    unexplained = in_range and varies and len(values) >= ENOUGH and not observed.heads(two_logits(values))
    return "sigmoid" if unexplained and values.ndim == 2 else "logits"


def _tolerance(values: Tensor) -> float:
    return 1e-2 if values.dtype in (torch.float16, torch.bfloat16) else 1e-3


def _refuse_multi_label(network: nn.Module, num_classes: int, of_sigmoids: bool) -> None:
    configs = (getattr(part, "config", None) for part in network.modules())
    declared = any(getattr(config, "problem_type", None) == "multi_label_classification" for config in configs)
    if not (declared or of_sigmoids):
        return
    reason = "its configuration has problem_type multi_label_classification"
    advice = "set model.config.problem_type = 'single_label_classification'"
    if not declared:
        reason = f"it returns sigmoids of {num_classes} classes, which do not sum to 1"
        advice = "pass a module that returns what enters the sigmoid"
    raise MultiLabelOutput(
        f"the model is a multi-label classifier: {reason}. Classes exclude each other here. If every image has exactly "
        f"one class, {advice}"
    )


def same_classes(some: Tensor, others: Tensor) -> bool:
    """Whether outputs are the same logits (B, K) but for a common factor and a shift of each row."""
    if some.shape != others.shape:
        return False
    is_finite = some.isfinite().all(1) & others.isfinite().all(1)  # where a network divides by 0 it gives NaN
    a, b = (logits.double() - logits.double().mean(1, keepdim=True) for logits in (some[is_finite], others[is_finite]))
    return bool(is_finite.any()) and bool((a * b).sum() >= (1 - 1e-5) * a.norm() * b.norm())


def takes_pixel_values(network: nn.Module) -> bool:
    """Whether it is an image model of transformers, or one with adapters of PEFT."""
    return getattr(network, "main_input_name", None) == "pixel_values"


def output_for(network: nn.Module, images: Batch) -> Any:
    """The output of a network for images, or for several tensors, which it takes by their names."""
    if isinstance(images, Mapping):
        return network(**images)
    return network(pixel_values=images) if takes_pixel_values(network) else network(images)


def logits_of(network: nn.Module, images: Batch) -> Any:
    """Logits of a network that returns them alone, or where libraries do; a classifier does in evaluation mode."""
    return LogitsReader()(output_for(network, images))


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In this context a network is in evaluation mode; after it each part is in the mode in which it was."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def described(output: object) -> str:
    return f"{tuple(output.shape)} of {output.dtype}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
