"""Run directories as a report reads them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tllib_ancon import methods
from tllib_ancon.config import PretrainConfig
from tllib_ancon.config.inherited import INHERITED
from tllib_ancon.errors import UserError, one_line
from tllib_ancon.given_paths import folder_of_runs
from tllib_ancon.selection import CRITERIA
from tllib_ancon.settings import settings_of, spec
from tllib_ancon.training.recorded_settings import NOT_SETTINGS
from tllib_ancon.training.run_directory import CONFIG, METRICS, RESULT
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
    "record_every",
    "save_epochs",
    "save_logits",
    "save_predictions",
    "inputs",
)
"""What tells runs of one table apart, where their files lie, or what of them is kept."""

CONFIG_FORM: dict[str, Any] = {
    "method": str,
    "seed": int,
    "checkpoint": str | None,
    "data": str | None,
    "target": list,
    "source": list | None,
    "versions": dict,
}
RESULT_FORM: dict[str, Any] = {"criterion": str, "start": dict, "selected": dict | None, "last": dict | None}
RECORD_FORM: dict[str, Any] = {"table": str, "failures": list}
"""Entries that a report reads, and their types."""

MEASURED = ("accuracy", "ece", "votes", "threshold", *CRITERIA)
"""Numbers of an epoch."""

MOST_SAID = 3
"""Settings, and values of each, that an error lists."""

METHOD_OPTIONS = tuple(methods.settings())
OF_THE_START = frozenset(name for name in INHERITED if spec(settings_of(PretrainConfig)[name]).defaults)
"""Inherited settings that depend on the method that trained the start, as the width of the bottleneck."""

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
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def start(self) -> str:
        """How the start model was made: a pre-training method, ``imagenet``, or ``checkpoint``."""
        if self.config["checkpoint"] == "imagenet":
            return "imagenet"
        return str(self.source.get("method", "checkpoint"))

    @property
    def target(self) -> str:
        return "+".join(self.config["target"]) or self._images

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

    @property
    def labelled(self) -> bool:
        """Whether the target had labels, and the run a record of accuracy and ECE."""
        return "accuracy" in self.result[START]

    @property
    def dataset(self) -> str:
        """The dataset, or the images that a Python call was given."""
        return str(self.config["data"] or self._images)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the labels; empty where the run did not write them down."""
        names = self._inputs.get("classes")
        return [str(name) for name in names] if isinstance(names, list) else []

    @property
    def _images(self) -> str:
        images = self._inputs.get("images")
        return "+".join(images) if isinstance(images, dict) else "images"

    @property
    def _inputs(self) -> dict[str, Any]:
        inputs = self.config.get("inputs")
        return inputs if isinstance(inputs, dict) else {}

    @cached_property
    def predictions(self) -> SavedPredictions | None:
        """What the run kept with ``save_predictions``.

        Raises:
            UserError: the file is damaged
        """
        return read_predictions(self.path)

    def measured(self, which: str) -> dict[str, Any]:
        """The metrics of ``start`` or of the ``selected`` model."""
        metrics: dict[str, Any] = self.result.get(which) or self.result[START]
        return metrics


def compared_everywhere(runs: Sequence[AdaptedRun]) -> list[AdaptedRun]:
    """The runs on targets, from sources and with seeds that every start and method among them has: those whose means
    can be compared."""
    by_method: dict[tuple[str, str], set[tuple[str, str, int]]] = {}
    for run in runs:
        by_method.setdefault((run.start, run.method), set()).add((run.target, run.column, run.seed))
    shared = set.intersection(*by_method.values()) if by_method else set()
    return [run for run in runs if (run.target, run.column, run.seed) in shared]


def read_runs(folders: Sequence[Path]) -> tuple[list[AdaptedRun], list[str]]:
    """Every finished adaptation in or below these folders, in the order of their paths; and which were left out
    because a file of theirs is damaged, one text each.

    Raises:
        UserError: a folder that does not exist, or no run that can be read
    """
    found: dict[Path, AdaptedRun] = {}
    left_out: dict[Path, str] = {}
    for folder in map(folder_of_runs, folders):
        for path in sorted(result.parent for result in folder.rglob(RESULT)):
            try:
                run = _read(path)
            except UserError as error:
                left_out.setdefault(path.resolve(), f"left out: {path}: {error}")
            else:
                if run is not None:
                    found.setdefault(path.resolve(), run)
    if not found:
        why = f" ({next(iter(left_out.values()))})" if left_out else ""
        raise UserError(f"no finished adaptation in {', '.join(map(str, folders))}{why}")
    order = methods.names()
    runs = sorted(found.values(), key=lambda run: order.index(run.method) if run.method in order else len(order))
    return runs, list(left_out.values())


def read_records(paths: Iterable[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """What ``benchmark`` wrote of its runs in these files, as far as they exist; and which are damaged, one text
    each."""
    records, damaged = [], []
    for path in paths:
        if path.is_file():
            try:
                record = read_json(path)
                _require_form(path, record, RECORD_FORM)
                if not all(isinstance(failure, dict) for failure in record["failures"]):
                    raise UserError(f"{path} has a failure that holds no names with values")
                records.append(record)
            except UserError as error:
                damaged.append(f"left out: {error}")
    return records, damaged


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
            if name not in varied:
                seen.setdefault((_compared_within(name, run), name), {}).setdefault(json.dumps(value), run)
    differing = {key: values for key, values in seen.items() if len(values) > 1}
    if differing:
        listed = "; ".join(_said(*key, values) for key, values in list(differing.items())[:MOST_SAID])
        more = f"; and {len(differing) - MOST_SAID} more" if len(differing) > MOST_SAID else ""
        raise UserError(f"these runs were made with different settings and make no one table ({listed}{more})")


def _compared_within(name: str, run: AdaptedRun) -> str:
    """The method or the start whose runs have this setting in common; empty for one that all runs have."""
    if name in METHOD_OPTIONS or name in defaults_of_method(run):
        return run.method
    return run.start if name in OF_THE_START or name.startswith("source ") else ""


def defaults_of_method(run: AdaptedRun) -> dict[str, Any]:
    """Settings of the training that this run has by the default of its method, such as ``criterion`` with
    ``ancon-auto``: in these, runs of one table may differ."""
    try:
        defaults = methods.training_defaults(run.method)
    except UserError:  # a method of a package that is not installed here
        return {}
    return {name: value for name, value in defaults.items() if run.config.get(name) == value}


def _said(group: str, name: str, values: Mapping[str, AdaptedRun]) -> str:
    shown = ", ".join(f"{value} in {run.path}" for value, run in list(values.items())[:MOST_SAID])
    more = f", and {len(values) - MOST_SAID} more" if len(values) > MOST_SAID else ""
    return f"{name}{f' of {group}' if group else ''}: {shown}{more}"


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
    config = read_json(path / CONFIG)
    if config.get("command") != "adapt":
        return None
    _require_form(path / CONFIG, config, CONFIG_FORM)
    config = {**dict.fromkeys(CONFIG_FORM), **config}
    if not all(isinstance(domain, str) for domain in (*config["target"], *(config["source"] or ()))):
        raise UserError(f"{path / CONFIG} has a domain whose name is no text")
    result, metrics = read_json(path / RESULT), read_metrics(path)
    _require_form(path / RESULT, result, RESULT_FORM)
    models = [model for which in (START, SELECTED, "last") if (model := result.get(which)) is not None]
    _require_epochs(path / RESULT, models)
    if [line["epoch"] for line in metrics] != list(range(models[-1]["epoch"] + 1)):
        raise UserError(f"{path / METRICS} does not hold each epoch of the run, 0 to {models[-1]['epoch']}, once")
    if len({name in model for model in models for name in ("accuracy", "ece")}) > 1:
        raise UserError(f"{path / RESULT} has accuracy and ECE of some of its models and not of all")
    return AdaptedRun(path, config, _source_config(path, config["checkpoint"]), result, metrics)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of the ``metrics.jsonl`` of a run directory, oldest first.

    Raises:
        UserError: it is missing or damaged
    """
    lines = [_parsed(path / METRICS, line) for line in _text(path / METRICS).splitlines()]
    _require_epochs(path / METRICS, lines)
    return lines


def read_json(path: Path) -> dict[str, Any]:
    """Names and values of a JSON file.

    Raises:
        UserError: it is missing or damaged, or holds something else
    """
    content = _parsed(path, _text(path))
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no names with values but {one_line(content)!r}")
    return content


def _require_epochs(path: Path, epochs: Iterable[Any]) -> None:
    if not all(map(_is_epoch, epochs)):
        raise UserError(
            f"{path} holds an epoch that lacks its number or one of its measures, or a measure that is no number"
        )


def _is_epoch(content: Any) -> bool:
    if not isinstance(content, dict) or not isinstance(content.get("epoch"), int):
        return False
    by_class = content.get("per_class_accuracy", [])
    finite = [content[name] for name in ("accuracy", "ece") if name in content]
    return (
        isinstance(by_class, list)
        and all(_is_number(content[name]) for name in MEASURED if name in content)
        and all(one is None or _is_number(one) for one in by_class)
        and all(map(math.isfinite, finite))
    )


def _is_number(content: Any) -> bool:
    return isinstance(content, int | float) and not isinstance(content, bool)


def _require_form(path: Path, content: Mapping[str, Any], form: Mapping[str, Any]) -> None:
    for name, kind in form.items():
        if not isinstance(content.get(name), kind):
            raise UserError(f"{path} has no {name!r}, or one of another type ({one_line(content.get(name))!r})")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({one_line(error)})") from error


def _parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({one_line(error)})") from error


def _source_config(path: Path, checkpoint: str | None) -> dict[str, Any]:
    """Of the run that a checkpoint belongs to: where it was, or beside this run if the folder was moved."""
    if checkpoint is None:
        return {}
    made_by = Path(checkpoint).parent.parent
    candidates = [made_by, *(folder / made_by.parent.name / made_by.name for folder in path.parents[:3])]
    found = next((folder / CONFIG for folder in candidates if (folder / CONFIG).is_file()), None)
    return read_json(found) if found else {}
