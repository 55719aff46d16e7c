"""The numbers of each epoch where people look at curves: TensorBoard, Weights & Biases or MLflow, by Accelerate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tllib_ancon.errors import UserError, one_line

PACKAGES = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "mlflow": ("mlflow",)}
FOLDER = "track"
"""In the run directory, for what a tracker keeps on disk."""


class Tracker:
    """Logs every number of an epoch. A tracker that fails is left out with one warning, and the run goes on.

    Args:
        name: ``tensorboard``, ``wandb`` or ``mlflow``
        run: the run directory
        settings: of the run, for the tracker's own record

    Raises:
        UserError: its package is missing
    """

    def __init__(self, name: str, run: Path, settings: Mapping[str, Any]):
        if not any(find_spec(package) for package in PACKAGES[name]):
            raise UserError(f"`track={name}` needs the package {name}; install it: pip install 'tllib-ancon[tracking]'")
        self.name = name
        self._tracker: Any = None
        self._attempt(lambda: self._start(run, settings))

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        """Log the numbers among the metrics of an epoch."""
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float) and name != "epoch"}
        self._attempt(lambda: self._tracker and self._tracker.log(numbers, step=metrics["epoch"]))

    def finish(self) -> None:
        self._attempt(lambda: self._tracker and self._tracker.finish())

    def _start(self, run: Path, settings: Mapping[str, Any]) -> None:
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        folder = run / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        places: dict[str, dict[str, Any]] = {
            "tensorboard": {"run_name": run.name, "logging_dir": folder},
            "wandb": {"run_name": run.name, "dir": str(folder)},
            "mlflow": {"experiment_name": run.name, "logging_dir": folder},
        }
        tracker = LOGGER_TYPE_TO_CLASS[self.name](**places[self.name])
        if hasattr(tracker, "start"):
            tracker.start()
        tracker.store_init_configuration({name: _plain(value) for name, value in settings.items()})
        self._tracker = tracker

    def _attempt(self, action: Any) -> None:
        try:
            action()
        except Exception as error:  # any error can come out of another service
            self._tracker = None
            warnings.warn(f"{self.name} tracks no longer: {one_line(error)}", stacklevel=3)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool) else str(value)
