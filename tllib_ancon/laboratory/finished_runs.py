"""Run directories as a report reads them, and the data frame that its tables and figures are made of."""

import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tllib_ancon import methods
from tllib_ancon.runtime.errors import UserError, reading
from tllib_ancon.runtime.text import csv_text, first_few, showable
from tllib_ancon.runtime.types import Metrics, Options, Record
from tllib_ancon.training.files import read_json
from tllib_ancon.training.run import CONFIG, RESULT, RunDirectory
from tllib_ancon.training.run_record import NOT_SETTINGS

ROW = ["start", "method", "variant"]
"""Columns of a frame that name a row of a table."""
PLACE = ["column", "severity", "seed"]
"""Columns of a frame that name the place in a row that one run fills."""

_IDENTITY = (
    "command",
    "root",
    "source",
    "target",
    "method",
    "seed",
    "checkpoint",
    "pretrained_weights",
    "save_predictions",
    "inputs",
)
"""What tells runs of one table apart, where their files lie, or what of them is kept."""
_NOT_COMPARED = frozenset((*_IDENTITY, *NOT_SETTINGS))

_OF_THE_START = ("bottleneck_dim", "bottleneck_dropout")
"""Settings whose default depends on the method that trained the source model."""

SETTINGS_OF_TRAINING = ("optimizer", "lr")
"""Settings that a run of a method without training leaves empty."""

_USUAL_STARTS = ("", "erm", "imagenet", "checkpoint")
_SEVERITY = re.compile(r"(.+)/(\d)")
MOST_LISTED = 3
"""Settings, values of each, and runs that a text lists."""

_PREFIXES = {"start": "start_", "selected": "", "last": "last_"}
"""Entry of a result -> what stands before the names of its numbers in a frame and in ``runs.csv``."""
_NUMBERS = ("epoch", "accuracy", "ece", "infomax")


def read_runs(folders: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """A row for each finished adaptation in or below these folders, and why damaged ones are left out."""
    runs = []
    left_out = []
    for path in _finished(folders):
        try:
            config = read_json(path / CONFIG)
            if config.get("command") == "adapt":
                runs.append(_read(path, config))
        except UserError as error:
            left_out.append(f"left out: {error}")
    if not runs:
        reason = ""
        if left_out:
            reason = f" ({left_out[0]})"
        raise UserError(
            f"no finished adaptation in {', '.join(map(str, folders))}{reason}", "give folders that hold one"
        )
    order = {method: place for place, method in enumerate(methods.names())}
    return pd.DataFrame(sorted(runs, key=lambda run: order.get(run["method"], len(order)))), left_out


def _finished(folders: Sequence[Path]) -> Iterable[Path]:
    """Each run directory with a result, once."""
    paths: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder", "give run directories or folders that hold them")
        for path in sorted(result.parent for result in folder.rglob(RESULT)):
            if (path / CONFIG).is_file():
                paths.setdefault(path.resolve(), path)
    return paths.values()


def _read(path: Path, config: Record) -> Record:
    """The row of one run; its columns stand here and in the functions that this calls."""
    with reading(path, "a finished adaptation"):
        source = _source_config(config["checkpoint"], path)
        start = "imagenet"
        if config["checkpoint"] != "imagenet":
            start = showable(source.get("method", "checkpoint"))
        method = showable(config["method"])
        run = RunDirectory(path)
        result = run.result()
        metrics = run.metrics()
        _check_range(metrics)
        return {
            "path": path,
            "config": config,
            "source": source,  # of the run that made its source model; empty if that is not found
            "metrics": metrics,  # a line an epoch, the source model first
            "settings": compared_settings(config, source),
            "start": start,  # how the source model was made: a pre-training method, ``imagenet``, or ``checkpoint``
            "method": method,
            "seed": int(config["seed"]),
            "machine": showable("torch {torch} on {device}".format(**config["versions"])),
            "labelled": "accuracy" in result["start"],  # whether the target had labels
            "method_defaults": _method_defaults(method, config),  # in these, runs of one table may differ
            "never_above_start": result.get("better_than_start") is False,
            **_domains(config),
            **_numbers(result),
        }


def _source_config(checkpoint: str | None, path: Path) -> Record:
    """The record of the run that made the source model. Both may have been moved together."""
    if checkpoint is None:
        return {}
    source = Path(checkpoint).parent.parent
    moved = [folder / source.parent.name / source.name for folder in path.parents[:3]]
    for place in (source, *moved):
        if (place / CONFIG).is_file():
            return read_json(place / CONFIG)
    return {}


def _check_range(metrics: Iterable[Record]) -> None:
    """Raise an error for a number beyond the range of floats, which is damage."""
    for line in metrics:
        for value in line.values():
            if isinstance(value, int):
                float(value)


def compared_settings(config: Record, source: Record) -> Record:
    """The settings that decide the numbers of a run, those of its source stage under ``source NAME``."""
    source_settings = {f"source {name}": value for name, value in source.items()}
    settings = {**config, **source_settings}
    return {name: value for name, value in settings.items() if name.removeprefix("source ") not in _NOT_COMPARED}


def _method_defaults(method: str, config: Record) -> Options:
    try:
        defaults = methods.training_defaults(method)
    except UserError:  # a method of a package that is not installed here
        return {}
    return {name: value for name, value in defaults.items() if config.get(name) == value}


def _domains(config: Record) -> Record:
    images = (config.get("inputs") or {}).get("images")  # of a Python call
    images_name = "images"
    if isinstance(images, dict):
        images_name = showable("+".join(images))
    source = showable("+".join(config["source"] or []))
    target = showable("+".join(config["target"] or [])) or images_name
    domains = {"dataset": showable(config["data"] or images_name), "target": target}
    corruption = _SEVERITY.fullmatch(target)
    if corruption:
        return {**domains, "pair": target, "column": corruption[1], "severity": int(corruption[2])}
    pair = "-".join(filter(None, (source, target)))
    return {**domains, "pair": pair, "column": pair, "severity": 0}


def _numbers(result: Record) -> Metrics:
    numbers: Metrics = {}
    for entry, prefix in _PREFIXES.items():
        scores = result.get(entry) or result["start"]
        for name in _NUMBERS:
            numbers[prefix + name] = float(scores.get(name, math.nan))
        numbers[f"{prefix}per_class_accuracy"] = np.array(scores.get("per_class_accuracy") or [], float).tolist()
    return numbers


def label(start: str, method: str) -> str:
    """Name of a method in a table: with its start, unless that is the usual one."""
    if start in _USUAL_STARTS:
        return method
    return f"{start}: {method}"


def refuse_mixed_settings(runs: pd.DataFrame, varied: Collection[str]) -> None:
    """Raise an error for runs that differ in settings which their table does not compare."""
    options = frozenset(methods.settings())
    first_runs: dict[str, dict[str, str]] = {}  # setting -> value -> text of the first run that has it
    for run in runs.itertuples():
        for name, value in run.settings.items():
            is_unused = value is None and name in SETTINGS_OF_TRAINING
            if name not in varied and not is_unused:
                values = first_runs.setdefault(name + _scope(name, run, options), {})
                text = json.dumps(value)
                values.setdefault(text, f"{text} in {run.path}")
    differing = {name: list(values.values()) for name, values in first_runs.items() if len(values) > 1}
    if differing:
        settings = [f"{name}: {first_few(values, MOST_LISTED)}" for name, values in differing.items()]
        texts = first_few(settings, MOST_LISTED, "; ")
        raise UserError(
            f"these runs were made with different settings and make no one table ({texts})",
            "give runs of the same settings",
        )


def _scope(name: str, run: Any, options: Collection[str]) -> str:
    """Among which runs of a table a setting must be the same: those of a method, of a start, or all."""
    if name in options or name in run.method_defaults:
        return f" of {run.method}"
    if name in _OF_THE_START or name.startswith("source "):
        return f" of {run.start}"
    return ""


def with_variants(runs: pd.DataFrame, varied: Iterable[str]) -> pd.DataFrame:
    """These runs and the ``variant`` of each, by the settings that its table compares."""
    usual = usual_settings(runs.config, varied)
    with_variant = runs.assign(variant=[variant(config, usual) for config in runs.config])
    repeated = with_variant[with_variant.duplicated([*ROW, *PLACE], keep=False)]
    for _, paths in repeated.groupby([*ROW, *PLACE]).path:
        raise UserError(f"{' and '.join(map(str, paths))} hold the same run", "give one of them")
    return with_variant


def usual_settings(configs: Iterable[Record], varied: Iterable[str]) -> Options:
    """The value that most runs have of each setting of a sweep."""
    usual = {}
    for name in varied:
        values = [config.get(name) for config in configs]
        usual[name] = max(values, key=values.count)
    return usual


def variant(config: Record, usual: Options) -> str:
    """Where a run leaves the usual settings of its sweep."""
    differing = [name for name, value in usual.items() if config.get(name) != value]
    return ", ".join(f"{name} {config.get(name)}" for name in differing)


def compared_everywhere(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on targets, from sources and with seeds that every start and method has: their means can be compared."""
    models = runs.assign(model=runs.start + ": " + runs.method)
    models_of_place = models.groupby(PLACE).model.transform("nunique")
    return runs[models_of_place == models.model.nunique()]


def runs_csv(runs: pd.DataFrame, varied: Sequence[str]) -> str:
    """One line for each run: compared settings, scores of source, selected and last model, and the selected epoch."""
    scores = [prefix + score for prefix in _PREFIXES.values() for score in ("accuracy", "ece")]
    lines = runs.sort_values(["target", "column", "start", "method", "seed"])
    lines = lines.assign(selected_epoch=lines.epoch.astype(int))
    for name in varied:
        lines[name] = [config.get(name) for config in lines.config]
    columns = ["pair", "start", "method", *varied, "seed", "selected_epoch", *scores]
    return csv_text([columns, *lines[columns].round(4).fillna("").to_numpy(object)])
