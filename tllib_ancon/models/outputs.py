"""What a network returns for images, and how its logits are read from it once their place is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tllib_ancon.runtime.errors import UserError

Kind = Literal["logits", "softmax", "percent", "sigmoid", "dirichlet", "evidence"]
Path = tuple[str | int, ...]
"""Keys, positions or names of attributes that lead from an output to a tensor in it."""

NAMES = ("logits", "out")
"""Under which libraries return logits in an output object or a dict."""


_EVIDENCE = (
    "the model returns evidence, by which the classes have a Dirichlet distribution; the logarithms of its parameters "
    "are used as logits"
)

_CONVERSIONS: dict[Kind, str] = {
    "softmax": "the model returns probabilities that sum to 1; their logarithms are used as logits",
    "percent": "the model returns percentages that sum to 100; their logarithms are used as logits",
    "sigmoid": "the model returns the probability of class 1; it is converted to a logit",
    "dirichlet": _EVIDENCE,
    "evidence": _EVIDENCE,
}
"""A line about each kind of output that is converted to logits."""


class OtherOutput(UserError):
    """A model that does not return logits (B, K).

    Attributes:
        methods: names of the methods that adapt it without a score
    """

    methods: tuple[str, ...] = ("adabn", "tent")


@dataclass(frozen=True)
class LogitsReader:
    """Where logits are in the output of a network.

    Attributes:
        path: leads to them; empty if the output is a tensor
        kind: logits, or probabilities of a softmax, the same in percent, or of a sigmoid; or the parameters of a
            Dirichlet distribution, or these less 1, the evidence
        width: classes K; 1 for one logit of a binary classifier
        of_several: whether the output has other tensors that could be logits
        placeholder: name of the module without weights that returns them in place of a head; empty for none
    """

    path: Path = ()
    kind: Kind = "logits"
    width: int = 0
    of_several: bool = False
    placeholder: str = ""

    @property
    def notes(self) -> list[str]:
        """A line for each fact about the output that the user should know."""
        lines = []
        if self.of_several:
            lines.append(
                f"the model returns several tensors; {place_of(self.path)} is taken for its logits, (B, {self.width})"
            )
        if self.placeholder:
            lines.append(
                f"the model's last module {self.placeholder} is an nn.Identity, and its output is taken for logits of "
                f"{self.width} classes; if these are features, put the classifier in its place"
            )
        if self.kind == "logits" and self.width == 1:
            lines.append("the model returns one number for an image; it is taken for the logit of class 1 of two")
        elif self.kind in _CONVERSIONS:
            lines.append(_CONVERSIONS[self.kind])
        return lines

    def raw(self, output: Any) -> Any:
        """The tensor of one column for each output unit, or the output itself without such a tensor.

        An output in training mode may have another form: the tensor of K columns counts, else the first.
        """
        value = tensor_at(output, self.path)
        if value is None:
            value = self._in_another_form(output)
        if isinstance(value, Tensor):
            return _logits_from(_without_pixels(value), self.kind)
        return value

    def __call__(self, output: Any) -> Any:
        logits = self.raw(output)
        if isinstance(logits, Tensor) and logits.ndim >= 2 and logits.is_floating_point():
            return two_logits(logits)
        return logits

    def _in_another_form(self, output: Any) -> Any:
        fitting = [tensor for _, tensor in tensors_in(output) if tensor.ndim == 2 and tensor.shape[1] == self.width]
        if len(fitting) == 1:
            return fitting[0]
        return usual_tensor(output)


def _without_pixels(values: Tensor) -> Tensor:
    """An output (B, K, 1, 1), as of a convolution, as (B, K); others unchanged."""
    if values.ndim == 4 and values.shape[2:] == (1, 1):
        return values.flatten(1)
    return values


def _logits_from(values: Tensor, kind: Kind) -> Tensor:
    """Logits of the distribution that the values give in another form, in float32 or float64."""
    if kind == "logits":
        return values
    probabilities = values
    if values.dtype != torch.float64:
        probabilities = values.float()
    precision = torch.finfo(probabilities.dtype)
    if kind in ("softmax", "percent"):
        return probabilities.clamp(min=precision.tiny).log()
    if kind == "dirichlet":
        return probabilities.log()
    if kind == "evidence":
        return probabilities.log1p()
    return probabilities.logit(eps=precision.eps)


def two_logits(logits: Tensor) -> Tensor:
    """One logit z of a binary classifier as two, (0, z); others unchanged."""
    if logits.shape[1] != 1 or logits.ndim == 3:  # (B, 1, K) is no logit of an image or of a pixel
        return logits
    return torch.cat([torch.zeros_like(logits), logits], 1)


def usual_tensor(output: Any) -> Any:
    """What most libraries return as logits: ``logits`` of an object or a dict, a tuple's first, or the output."""
    for name in NAMES:
        value = tensor_at(output, (name,))
        if isinstance(value, Tensor):
            return value
    if isinstance(output, tuple | list) and output:
        return output[0]
    return output


def tensor_at(output: Any, path: Path) -> Any:
    """The tensor to which a path leads, else None."""
    value = output
    for key in path:
        value = _entry(value, key)
    if isinstance(value, Tensor):
        return value
    return None


def _entry(container: Any, key: str | int) -> Any:
    if isinstance(container, Mapping):
        return container.get(key)
    if isinstance(key, str):
        return getattr(container, key, None)
    if isinstance(container, Sequence) and len(container) > key:
        return container[key]
    return None


def tensors_in(output: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Tensors of floats in an output and the paths to them."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield path, output
        return
    for key, value in _entries(output):
        yield from tensors_in(value, (*path, key))


def _entries(output: Any) -> Any:
    """Pairs of a key, a position or the name of an attribute in a container, and what stands there."""
    if isinstance(output, Mapping):
        return output.items()
    if isinstance(output, tuple | list):
        return enumerate(output)
    if hasattr(output, "__dict__") and not isinstance(output, nn.Module | type):
        return vars(output).items()
    return ()


def place_of(path: Path) -> str:
    """A path as Python writes it after the output: ``[1]``, ``['scores']``, ``[0]['a']``."""
    return "".join(f"[{key!r}]" for key in path)


def described(output: object) -> str:
    if isinstance(output, Tensor):
        return f"{tuple(output.shape)} of {output.dtype}"
    return f"a {type(output).__name__}"
