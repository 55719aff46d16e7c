"""One observed call of a network: its logits, by their contract, and the head that returns them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.models.calling import called
from tllib_ancon.models.class_names import class_names_of
from tllib_ancon.models.foundation import CosineHead
from tllib_ancon.models.output import OutputReader
from tllib_ancon.outputs import from_one_logit
from tllib_ancon.runtime.errors import BadModel, named, one_line, unknown_name

Calls = dict[str, tuple[int, Tensor]]
"""Name of a module -> D and output of its last call."""


def inspect(
    network: nn.Module, images: Tensor, reader: OutputReader, head: str | None = None, num_classes: int = 0
) -> tuple[Tensor, dict[str, int]]:
    """Call a network once in evaluation mode, check its logits, and find their head.

    Args:
        network: images -> logits
        images: a few, as the network gets them
        reader: of its output
        head: names of its heads with commas between them. Default: found by the call
        num_classes: K where the user or a run tells it, else 0

    Returns: logits (B, K), and D of each head by its name: modules with weights that return the logits, or whose mean
    they are; none where no module does
    """
    _require_one_class(network)
    names = [] if head is None else str(head).split(",")
    modules = [name for name, _ in network.named_modules() if name]
    for name in names:
        if name not in modules:
            raise unknown_name("module of the model", name, modules)
    output, calls = _observed_call(network, images, names)
    logits = reader(output, len(images))
    candidates = [names] if names else [[name] for name in calls]
    heads = next((heads for heads in candidates if _have_logits_as_mean(heads, calls, logits)), [])
    if names and not heads:
        raise BadModel(
            f"what {named('head', head)} returns for (B, D) are not the model's logits",
            f"name the module that returns them, or those whose mean they are, or pass {named('output')}",
            setting="head",
        )
    if not heads:
        reader.require_no_probabilities(logits)
        if not callable(reader.hook) and logits.isfinite().all(1).any():
            _require_known_classes(network, logits.shape[1], num_classes)
    return logits, {name: calls[name][0] for name in heads}


def _require_one_class(network: nn.Module) -> None:
    """Raise an error if a part is a model of transformers whose classes exclude no others."""
    for module in network.modules():
        problem = getattr(getattr(module, "config", None), "problem_type", None)
        if problem not in (None, "single_label_classification"):
            raise BadModel(
                f"the model's configuration has problem_type {one_line(problem)}; here classes exclude each other",
                "if each image has one class, set it to 'single_label_classification'",
            )


def _observed_call(network: nn.Module, images: Tensor, names: list[str]) -> tuple[Any, Calls]:
    """The output of a network, and the calls of its modules with these names, else of all that may be heads."""
    calls: Calls = {}
    with ExitStack() as contexts, observing():
        for name, module in network.named_modules():
            if name in names or (not names and isinstance(module, nn.Linear | nn.Conv2d | CosineHead)):
                contexts.enter_context(module.register_forward_hook(partial(_remember, calls, name)))
        return called(network, images), calls


def _remember(calls: Calls, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
    """Remember the last call of a module if it takes (B, D), or as a convolution (B, D, 1, 1)."""
    calls.pop(name, None)
    shape: torch.Size = getattr(next(iter(inputs), None), "shape", torch.Size())
    if len(shape) == 2 or (isinstance(module, nn.Conv2d) and shape[2:] == (1, 1)):
        calls[name] = shape[1], output.detach().flatten(1)


def _have_logits_as_mean(names: list[str], calls: Calls, logits: Tensor) -> bool:
    """Whether the mean of these modules' outputs gives the probabilities of the logits, where these are finite."""
    outputs = [calls[name][1] for name in names if name in calls]
    shapes = {output.shape for output in outputs}
    if len(outputs) < len(names) or not shapes <= {logits.shape, (len(logits), 1)} or len(shapes) > 1:
        return False
    mean = torch.stack(outputs).mean(0).double()
    if mean.shape[1] == 1:
        mean = from_one_logit(mean)
    finite = logits.isfinite().all(1)
    log_probabilities = logits[finite].double().log_softmax(1)
    return torch.allclose(mean[finite].log_softmax(1), log_probabilities, 1e-3, 1e-3)


def _require_known_classes(network: nn.Module, width: int, num_classes: int) -> None:
    """Raise an error for an output that no head returns, if nothing tells that the model has as many classes: it may
    be features. Programs hide their modules."""
    config = getattr(network, "config", None)
    numbers = (num_classes, getattr(network, "num_classes", 0), getattr(config, "num_labels", 0))
    if width in numbers or is_program(network) or class_names_of(network, width) is not None:
        return
    raise BadModel(
        f"no module of the model with weights returns its output of {width} columns, which may be features",
        f"pass the model with its classifier; if they are logits, pass {named('class_names')}, or in Python "
        f"{named('head')} or {named('output')}",
        setting="output",
    )


def is_program(model: nn.Module) -> bool:
    """Whether a part of it is TorchScript."""
    return any(isinstance(part, torch.jit.ScriptModule) for part in model.modules())


def observing() -> AbstractContextManager[Any]:
    """A context in which hooks see what compiled modules compute."""
    stance: AbstractContextManager[Any] = nullcontext()
    if "torch._dynamo" in sys.modules:  # else nothing is compiled, and the import takes a second
        stance = torch.compiler.set_stance("force_eager")
    return stance
