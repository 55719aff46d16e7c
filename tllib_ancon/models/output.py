"""The contract of a model's output, logits (B, K), and the hook ``output`` for models that return something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from tllib_ancon.outputs import HELPERS
from tllib_ancon.runtime.errors import BadModel, BadSetting, named, one_line

Output = Callable[[Any], Any] | str | int
"""What the argument ``output`` may be: a function, a key, a position in a tuple, or a helper or its name."""

ENOUGH = 8
"""Images of which logits do not all lie in [0, 1] by chance."""


@dataclass(frozen=True)
class OutputReader:
    """What a model returns -> logits (B, K).

    Attributes:
        hook: function, key, position or name of a helper; None where the model returns logits
    """

    hook: Output | None = None

    @classmethod
    def of(cls, output: Output | None) -> OutputReader:
        """The reader of an argument or a setting ``output``."""
        if output is None:
            return cls()
        for name, helper in HELPERS.items():
            if output is helper:
                return cls(name)
        if isinstance(output, str) and output.removeprefix("-").isdigit():
            return cls(int(output))
        if isinstance(output, str | int) or callable(output):
            return cls(output)
        raise BadSetting(
            f"{named('output')} must be a function, a key or a position, not of type {type(output).__name__}",
            setting="output",
        )

    @property
    def recorded(self) -> Any:
        """What a run records: a key, a position or a helper, or the name of a function, which the run cannot build."""
        if callable(self.hook):
            return {"function": getattr(self.hook, "__qualname__", type(self.hook).__qualname__)}
        return self.hook

    def __call__(self, output: Any, count: int, training: bool = False) -> Tensor:
        """Logits (B, K) in the output for ``count`` images. In training mode a tuple's first item are logits, too, and
        a position applies to tuples alone.

        Raises:
            UserError: an output that holds no such logits, or a function that raises or returns something else
        """
        logits = self._of(output, training)
        is_float = isinstance(logits, Tensor) and logits.is_floating_point()
        if is_float and logits.ndim == 2 and len(logits) == count and logits.shape[1]:
            return cast(Tensor, logits)
        if self.hook is not None:
            what = f"{_shown(self.hook)} gives {structure_of(logits)} of {structure_of(output)}"
            raise BadModel(what, f"it must give logits ({count}, K), floating-point", setting="output")
        if is_float and logits.shape == (count,):
            raise _one_number(logits)
        mode = " in training mode" if training else ""
        raise BadModel(
            f"the model returns {structure_of(output)}{mode} where logits ({count}, K) are expected",
            f"pass {named('output')}, a key or a position that leads to the logits, or in Python a function that "
            "returns them",
            setting="output",
        )

    def _of(self, output: Any, training: bool) -> Any:
        if callable(self.hook):
            return self._called(self.hook, output)
        if self.hook in HELPERS:
            return self._called(HELPERS[str(self.hook)], _usual(output, training))
        if isinstance(self.hook, str):
            return _entry(output, self.hook)
        if self.hook is None or (training and not isinstance(output, tuple | list)):
            return _usual(output, training)
        if isinstance(output, tuple | list) and -len(output) <= self.hook < len(output):
            return output[self.hook]
        return None

    def _called(self, function: Callable[[Any], Any], output: Any) -> Any:
        try:
            return function(output)
        except Exception as error:  # it is the user's code
            raise BadModel(
                f"{_shown(self.hook)} raises {type(error).__name__} ({one_line(error)}) for {structure_of(output)}",
                "pass a function that returns logits (B, K) for it",
                setting="output",
            ) from error


def _shown(hook: Any) -> str:
    """The hook as the user passes it."""
    if callable(hook):
        return named("output", OutputReader(hook).recorded["function"])
    return named("output", hook)


def _usual(output: Any, training: bool) -> Any:
    """Logits where libraries return them: the output, or its entry or attribute ``logits``."""
    if isinstance(output, Tensor):
        return output
    logits = _entry(output, "logits")
    if logits is None and training and isinstance(output, tuple | list) and output:
        return output[0]
    return logits


def _entry(output: Any, name: str) -> Any:
    if isinstance(output, Mapping):
        return output.get(name)
    return getattr(output, name, None)


def structure_of(value: Any) -> str:
    """A value with the shapes of the tensors in it: ``(tensor (8, 512), tensor (8, 10))``."""
    if isinstance(value, Tensor):
        kind = "tensor" if value.is_floating_point() else f"{str(value.dtype).removeprefix('torch.')} tensor"
        return f"{kind} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {structure_of(part)}' for key, part in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(structure_of, value))})"
    if value is None:
        return "nothing"
    return f"a {type(value).__name__}"


def require_logits(network: nn.Module, logits: Tensor, of_head: bool) -> None:
    """Raise an error for numbers (B, K) that are no logits of K classes that exclude each other. What a head returns,
    ``of_head``, are no probabilities."""
    config = getattr(network, "config", None)
    if getattr(config, "problem_type", None) == "multi_label_classification":
        raise BadModel(
            "the model's configuration has problem_type multi_label_classification; here classes exclude each other",
            "if each image has one class, set model.config.problem_type = 'single_label_classification'",
        )
    if logits.shape[1] < 2:
        raise _one_number(logits)
    finite = logits[logits.isfinite().all(1)].float()
    if not of_head and finite.numel() and _are_probabilities(finite):
        advice = f"pass {named('output', 'from_probabilities')}, which converts them to logits"
        raise BadModel(
            f"the model returns probabilities, tensor {tuple(logits.shape)}, where logits are expected",
            advice,
            setting="output",
        )


def _are_probabilities(values: Tensor) -> bool:
    """Whether values (B, K) are not negative, and lie in [0, 1] for enough images or have rows that sum to 1 or 100."""
    if (values < 0).any():
        return False
    if len(values) >= ENOUGH and (values <= 1).all():
        return bool(values.any())
    sums = values.sum(1)
    return any(bool(((sums - total).abs() < 1e-2 * total).all()) for total in (1, 100))


def _one_number(values: Tensor) -> BadModel:
    """The error for a model that returns one number for each image."""
    finite = values[values.isfinite()]
    is_in_unit_interval = bool(((finite >= 0) & (finite <= 1)).all())
    first, second = ("from_one_logit", "its logit"), ("from_probabilities", "its probability")
    if is_in_unit_interval:
        first, second = second, first
    return BadModel(
        f"the model returns one number for an image, tensor {tuple(values.shape)}, where logits (B, K) are expected",
        f"pass {named('output', first[0])} if it is class 1 of two by {first[1]}, {named('output', second[0])} by "
        f"{second[1]}",
        setting="output",
    )
