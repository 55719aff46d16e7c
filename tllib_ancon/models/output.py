"""The contract of a model's output, logits (B, K), and the hook ``output`` for models that return something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from tllib_ancon.outputs import HELPERS
from tllib_ancon.runtime.errors import BadModel, named, one_line

Output = Callable[[Any], Any] | str | int
"""What the argument ``output`` may be: a function, a key, a position in a tuple, or a helper or its name."""

ENOUGH = 8
"""Images at least, from which on logits do not all lie in [0, 1] by chance."""


@dataclass(frozen=True)
class OutputReader:
    """What a model returns -> logits (B, K).

    Attributes:
        hook: function, key or position; None where the model returns logits
    """

    hook: Output | None = None

    @classmethod
    def of(cls, output: Any) -> OutputReader:
        """The reader of an argument or a setting ``output``."""
        if isinstance(output, str) and output.removeprefix("-").isdigit():
            return cls(int(output))
        if isinstance(output, str):
            return cls(HELPERS.get(output, output))
        return cls(output)

    @property
    def recorded(self) -> Any:
        """What a run records: a key, a position or a helper, or the name of a function, which the run cannot build."""
        if not callable(self.hook):
            return self.hook
        name = getattr(self.hook, "__qualname__", type(self.hook).__qualname__)
        if HELPERS.get(name) is self.hook:
            return name
        return {"function": name}

    def __call__(self, output: Any, count: int, training: bool = False) -> Tensor:
        """Logits (B, K) in the output for ``count`` images. In training mode a tuple's first item are logits, too, and
        a position applies to tuples alone.

        Raises:
            UserError: an output that holds no such logits, or a hook that raises or returns something else
        """
        try:
            logits = self._logits_in(output, training)
        except Exception as error:  # it is the user's code
            text = f"{self._name} raises {type(error).__name__} ({one_line(error)}) for {_structure_of(output)}"
            raise self._error(text) from error
        is_float = isinstance(logits, Tensor) and logits.is_floating_point()
        if is_float and logits.ndim == 2 and len(logits) == count and logits.shape[1] > 1:
            return cast(Tensor, logits)
        what = "the model returns"
        if self.hook is not None:
            what = f"{self._name} gives {_structure_of(logits)} of"
        mode = " in training mode" if training else ""
        raise self._error(f"{what} {_structure_of(output)}{mode} where logits ({count}, K) are expected")

    def _logits_in(self, output: Any, training: bool) -> Any:
        is_tuple = isinstance(output, tuple | list)
        if isinstance(self.hook, int) and (is_tuple or not training):
            return output[self.hook]
        if isinstance(self.hook, str):
            return _entry(output, self.hook)
        logits = output if isinstance(output, Tensor) else _entry(output, "logits")
        if logits is None and training and is_tuple:
            logits = output[0]
        if self.hook is None or isinstance(self.hook, int):
            return logits
        return self.hook(logits if self.hook in HELPERS.values() else output)

    def require_no_probabilities(self, logits: Tensor) -> None:
        """Raise an error for rows (B, K) that are not negative, and lie in [0, 1] for enough images or sum to 1 or
        100."""
        rows = logits[logits.isfinite().all(1)].float()
        sums = rows.sum(1)
        if not len(rows) or (rows < 0).any() or not rows.any():
            return
        are_sigmoids = len(rows) >= ENOUGH and (rows <= 1).all()
        if are_sigmoids or any(((sums - total).abs() < 1e-2 * total).all() for total in (1, 100)):
            what = "the model returns" if self.hook is None else f"{self._name} gives"
            raise self._error(f"{what} probabilities {tuple(logits.shape)} where logits are expected")

    def _error(self, problem: str) -> BadModel:
        converters = "from_probabilities, or from_one_logit of one number for an image"
        action = f"in Python pass {named('output')}, a function of the model's output, such as {converters}"
        if self.hook is None:
            action = f"pass {named('output')}, a key or a position of logits, {converters}, or in Python a function"
        return BadModel(problem, action, setting="output")

    @property
    def _name(self) -> str:
        """The hook as the user passes it."""
        return named("output", getattr(self.hook, "__qualname__", self.hook))


def _entry(output: Any, name: str) -> Any:
    if isinstance(output, Mapping):
        return output.get(name)
    return getattr(output, name, None)


def _structure_of(value: Any) -> str:
    """A value with the shapes of the tensors in it: ``(torch.float32 (8, 512), torch.float32 (8, 10))``."""
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_structure_of(part)}' for key, part in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_structure_of, value))})"
    return "nothing" if value is None else f"a {type(value).__name__}"
