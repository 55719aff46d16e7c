"""Run directories as a report reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tllib_ancon import methods
from tllib_ancon.errors import UserError
from tllib_ancon.training.run_directory import CONFIG, METRICS, NOT_SETTINGS, RESULT
from tllib_ancon.training.saved_predictions import SavedPredictions, read_predictions

SELECTED, START = "selected", "start"
IDENTITY = (
    "command",
    "root",
    "source",
    "target",
    "method",
    "seed",
    "checkpoint",
    "pretrained_weights",
    "save_epochs",
    "save_predictions",
    "inputs",
)
"""What tells runs of one table apart, or where their files lie."""

METHOD_OPTIONS = tuple(methods.settings())
SEVERITY = re.compile(r"(.+)/(\d)")


@dataclass(frozen=True)
class AdaptedRun:
    """A finished adaptation.

    Attributes:
        path: its folder
        config: of the run
        source: configuration of the run that made its start model; empty where that is not found
        result: start, selected and last model
        metrics: a line an epoch, the start model first
    """

    path: Path
    config: dict[str, Any]
    source: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, Any]]

    @property
    def method(self) -> str:
        return self.config["method"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def start(self) -> str:
        """How the start model was made: a pre-training method, ``imagenet``, or ``checkpoint``."""
        if self.config["checkpoint"] == "imagenet":
            return "imagenet"
        return self.source.get("method", "checkpoint")

    @property
    def target(self) -> str:
        return "+".join(self.config["target"])

    @property
    def severity(self) -> int | None:
        found = SEVERITY.fullmatch(self.target)
        return int(found[2]) if found else None

    @property
    def column(self) -> str:
        """The pair of domains, or the corruption."""
        found = SEVERITY.fullmatch(self.target)
        if found:
            return found[1]
        source = "+".join(self.config["source"] or [])
        return f"{source}-{self.target}" if source else self.target

    @cached_property
    def predictions(self) -> SavedPredictions | None:
        return read_predictions(self.path)

    def measured(self, which: str) -> dict[str, Any]:
        """The metrics of ``start`` or of the ``selected`` model."""
        return self.result.get(which, self.result[START])


def compared_everywhere(runs: Sequence[AdaptedRun]) -> list[AdaptedRun]:
    """The runs on targets, from sources and with seeds that every start and method among them has: those whose means
    can be compared."""
    by_method: dict[tuple[str, str], set[tuple[str, str, int]]] = {}
    for run in runs:
        by_method.setdefault((run.start, run.method), set()).add((run.target, run.column, run.seed))
    shared = set.intersection(*by_method.values()) if by_method else set()
    return [run for run in runs if (run.target, run.column, run.seed) in shared]


def read_runs(folders: Sequence[Path]) -> list[AdaptedRun]:
    """Every finished adaptation in or below these folders, in the order of their paths.

    Raises:
        UserError: a folder that does not exist, no such run at all, a run whose target had no labels, a damaged file
    """
    found: dict[Path, AdaptedRun] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; give run directories or folders that hold them")
        for path in sorted(result.parent for result in folder.rglob(RESULT)):
            run = _read(path)
            if run is not None:
                found.setdefault(path.resolve(), run)
    if not found:
        raise UserError(f"no finished adaptation in {', '.join(map(str, folders))}")
    order = methods.names()
    return sorted(found.values(), key=lambda run: order.index(run.method) if run.method in order else len(order))


def refuse_mixed_settings(runs: Sequence[AdaptedRun], varied: Iterable[str]) -> None:
    """Numbers of one table come from the same settings.

    Args:
        runs: of one table
        varied: settings that the table compares

    Raises:
        UserError: settings that differ, with their values
    """
    varied = {name.replace("-", "_") for name in varied}
    seen: dict[tuple[str, str], dict[str, AdaptedRun]] = {}
    for run in runs:
        for name, value in settings(run).items():
            group = run.method if name in METHOD_OPTIONS else run.start if name.startswith("source ") else ""
            if name not in varied:
                seen.setdefault((group, name), {}).setdefault(json.dumps(value), run)
    differing = {key: values for key, values in seen.items() if len(values) > 1}
    if differing:
        listed = "; ".join(
            f"{name}{f' of {group}' if group else ''}: "
            + ", ".join(f"{value} in {run.path}" for value, run in values.items())
            for (group, name), values in differing.items()
        )
        raise UserError(f"these runs were made with different settings and make no one table ({listed})")


def settings(run: AdaptedRun) -> dict[str, Any]:
    """What decides the numbers of a run, those of its source stage under ``source NAME``."""
    own = {name: value for name, value in run.config.items() if _decides(name)}
    return own | {f"source {name}": value for name, value in run.source.items() if _decides(name)}


def deviations(
    runs: Sequence[AdaptedRun], planned: Mapping[str, Mapping[str, Any]], varied: Iterable[str]
) -> list[str]:
    """Settings in which runs differ from the plan of their table, one text each.

    Args:
        runs: of one table
        planned: start -> settings of the plan, named as :func:`settings` names them
        varied: settings that the table compares
    """
    varied = {name.replace("-", "_") for name in varied}
    found: dict[str, None] = {}
    for run in runs:
        expected = json.loads(json.dumps(planned.get(run.start, {})))
        for name, value in settings(run).items():
            own = name.removeprefix("source ")
            said = own != name and (value, expected.get(name)) == (run.config.get(own), expected.get(own))
            if name in expected and name not in varied and expected[name] not in (value, None) and not said:
                found.setdefault(f"{name.replace('_', '-')}: {value}, in the paper's plan {expected[name]}")
        weights = (run.source or run.config).get("pretrained_weights")
        if weights is not None:
            found.setdefault(f"pre-trained weights: {Path(weights).name}")
    return list(found)


def _decides(name: str) -> bool:
    return name not in IDENTITY and name not in NOT_SETTINGS


def _read(path: Path) -> AdaptedRun | None:
    if not (path / CONFIG).is_file():  # the folder of both stages of ``tllib-ancon run``
        return None
    try:
        config = json.loads((path / CONFIG).read_text())
        result = json.loads((path / RESULT).read_text())
        if config.get("command") != "adapt":
            return None
        metrics = [json.loads(line) for line in (path / METRICS).read_text().splitlines()]
        source = _source_config(path, config["checkpoint"])
    except (OSError, ValueError) as error:
        raise UserError(f"run directory {path} cannot be read ({error})") from error
    if "accuracy" not in result[START]:
        raise UserError(f"run directory {path}: its target has no labels, so there is nothing to report")
    return AdaptedRun(path, config, source, result, metrics)


def _source_config(path: Path, checkpoint: str) -> dict[str, Any]:
    """Of the run that a checkpoint belongs to: where it was, or beside this run if the folder was moved."""
    made_by = Path(checkpoint).parent.parent
    candidates = [made_by, *(folder / made_by.parent.name / made_by.name for folder in path.parents[:3])]
    found = next((folder / CONFIG for folder in candidates if (folder / CONFIG).is_file()), None)
    return json.loads(found.read_text()) if found else {}
