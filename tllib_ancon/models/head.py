"""One observed call of a network: its logits, by their contract, and the head that returns them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tllib_ancon.models.calling import called
from tllib_ancon.models.class_names import class_names_of
from tllib_ancon.models.foundation import CosineHead
from tllib_ancon.models.output import OutputReader, require_logits
from tllib_ancon.outputs import from_one_logit
from tllib_ancon.runtime.errors import BadModel, BadSetting, named, unknown_name


class _Call(NamedTuple):
    """One call of a module that takes vectors."""

    features: Tensor  # (B, D)
    output: Tensor  # (B, K)


@dataclass(frozen=True)
class Inspection:
    """What one call of a network shows.

    Attributes:
        logits: (B, K)
        heads: names of the modules with weights that return them, or whose mean they are; may be empty
        widths: D of each head
    """

    logits: Tensor
    heads: list[str]
    widths: list[int]


def inspect(
    network: nn.Module,
    images: Tensor,
    reader: OutputReader,
    head: str | None = None,
    num_classes: int = 0,
) -> Inspection:
    """Call a network once in evaluation mode, check its logits, and find their head.

    Args:
        network: images -> logits
        images: a few, as the network gets them
        reader: of its output
        head: names of its heads with commas between them. Default: found by the call
        num_classes: K where the user or a run tells it, else 0
    """
    names = head_names(head, network)
    calls: dict[str, _Call] = {}
    with ExitStack() as contexts:
        for name, module in _possible_heads(network, names).items():
            contexts.enter_context(module.register_forward_hook(partial(_remember, calls, name, len(images))))
        contexts.enter_context(observing())
        output = called(network, images)
    logits = reader(output, len(images))
    heads = names or [name for name, call in calls.items() if _predict_the_same(call.output, logits)][:1]
    require_logits(network, logits, of_head=bool(heads))
    if names:
        _require_heads(names, calls, logits)
    elif not heads and not callable(reader.hook):
        _require_known_classes(network, logits.shape[1], num_classes)
    return Inspection(logits, heads, [calls[name].features.shape[1] for name in heads])


def head_names(head: str | None, network: nn.Module) -> list[str]:
    """The names of modules, with commas between them in the argument ``head`` of a call; none without it."""
    if head is None:
        return []
    if not isinstance(head, str):
        raise BadSetting(
            f"{named('head')} must be the dotted name of a module in the model, or several with commas between, "
            f"not of type {type(head).__name__}",
            setting="head",
        )
    modules = [name for name, _ in network.named_modules() if name]
    for name in head.split(","):
        if name not in modules:
            raise unknown_name("module of the model", name, modules)
    return head.split(",")


def _possible_heads(network: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    """The modules with these names; without names all that may be heads."""
    if isinstance(network, torch.jit.ScriptModule):  # it takes no hooks
        return {}
    if names:
        return {name: network.get_submodule(name) for name in names}
    return {
        name: part for name, part in network.named_modules() if isinstance(part, nn.Linear | nn.Conv2d | CosineHead)
    }


def _remember(
    calls: dict[str, _Call], name: str, count: int, module: nn.Module, inputs: tuple[Any, ...], output: Any
) -> None:
    """Remember the last call of a module if it takes (B, D), or as a convolution (B, D, 1, 1)."""
    calls.pop(name, None)
    if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
        return
    features = inputs[0].detach()
    if isinstance(module, nn.Conv2d) and features.shape[2:] == (1, 1):
        features = features.flatten(1)
    if features.ndim == 2 and len(features) == count:
        calls[name] = _Call(features, output.detach().flatten(1))


def _predict_the_same(output: Tensor, logits: Tensor) -> bool:
    """Whether the output of a module gives the probabilities of the logits."""
    of_module = output
    if output.shape[1] == 1:
        of_module = from_one_logit(output)
    if of_module.shape != logits.shape:
        return False
    log_probabilities = logits.double().log_softmax(1)
    return torch.allclose(of_module.double().log_softmax(1), log_probabilities, 1e-3, 1e-3, equal_nan=True)


def _require_heads(names: Sequence[str], calls: dict[str, _Call], logits: Tensor) -> None:
    """Raise an error if the mean of these modules' outputs are not the logits."""
    for name in names:
        if name not in calls:
            raise BadModel(
                f"the model does not call its module {name} on (B, D)", f"{named('head')} must name one after pooling"
            )
    outputs = [calls[name].output for name in names]
    have_one_shape = len({output.shape for output in outputs}) == 1
    if not have_one_shape or not _predict_the_same(torch.stack(outputs).mean(0), logits):
        raise BadModel(
            f"what {named('head', ','.join(names))} returns are not the model's logits",
            f"name the modules whose mean they are, or pass {named('output')}",
            setting="head",
        )


def _require_known_classes(network: nn.Module, width: int, num_classes: int) -> None:
    """Raise an error for an output that no head returns, if nothing tells that the model has as many classes: it may
    be features."""
    config = getattr(network, "config", None)
    numbers = (num_classes, getattr(network, "num_classes", 0), getattr(config, "num_labels", 0))
    programs = (torch.jit.ScriptModule, torch.fx.GraphModule)  # which hide their modules
    is_program = any(isinstance(module, programs) for module in network.modules())
    if width in numbers or is_program or class_names_of(network, width) is not None:
        return
    raise BadModel(
        f"no module of the model with weights returns its output of {width} columns, which may be features",
        f"pass the model with its classifier; if they are logits, pass {named('class_names')}, or in Python "
        f"{named('head')} or {named('output')}",
        setting="output",
    )


@contextmanager
def observing() -> Iterator[None]:
    """In this context hooks see what compiled modules compute, and random numbers are the same each time."""
    stance: AbstractContextManager[Any] = nullcontext()
    if "torch._dynamo" in sys.modules:  # else nothing is compiled, and the import takes a second
        stance = torch.compiler.set_stance("force_eager")
    with stance, torch.random.fork_rng():
        torch.manual_seed(0)
        yield
