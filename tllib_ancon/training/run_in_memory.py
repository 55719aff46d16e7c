"""A run that keeps nothing on disk: the best model stays in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tllib_ancon.errors import UserError
from tllib_ancon.training.run_directory import BEST


class RunInMemory:
    """What a training loop asks of a :class:`~tllib_ancon.training.run_directory.RunDirectory`, without files.

    It cannot be continued, and keeps the last model and the best so far, on the CPU.
    """

    path = "a run in memory"
    finished = False

    def __init__(self) -> None:
        self._models: dict[str, dict[str, Any]] = {}

    def begin(self, config: Mapping[str, Any], overwrite: bool = False) -> list[str]:
        """Nothing is there to be claimed."""
        return []

    def resume(self) -> None:
        """Nothing is there to go on from."""

    def save_epoch(self, snapshot: Mapping[str, Any], metrics: list[dict[str, Any]], selected: bool) -> None:
        """Keep the model if it is the best so far."""
        if selected:
            model = snapshot["parts"]["model"]
            self._models[BEST] = {name: tensor.detach().cpu().clone() for name, tensor in model.items()}

    def keep_epoch(self, epoch: int) -> None:
        raise UserError("`save_epochs` needs a run directory; pass `log`")

    def then(self, write: Callable[[], object]) -> None:
        """Write it now: nothing is written before."""
        write()

    def wait(self) -> None:
        """Nothing is being written."""

    def load(self, name: str) -> dict[str, Any]:
        """The weights that :meth:`save_epoch` kept as the best."""
        return self._models[name]

    def last_good(self, epoch: int) -> str:
        """No model outlives the run."""
        return ""

    def finish(self, result: Mapping[str, Any]) -> None:
        """Nothing is to be closed."""

    def close(self) -> None:
        """Nothing is to be let go of."""
