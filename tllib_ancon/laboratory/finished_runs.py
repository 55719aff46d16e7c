"""Finished runs as one data frame, which the tables and figures of a report are made of."""

import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tllib_ancon import methods
from tllib_ancon.measures.selection import CRITERIA
from tllib_ancon.runs.directory import CONFIG, RESULT, RunDirectory
from tllib_ancon.runs.files import read_json
from tllib_ancon.runs.record import NOT_SETTINGS
from tllib_ancon.runtime.errors import UserError, reading
from tllib_ancon.runtime.text import csv_text, first_few, showable
from tllib_ancon.runtime.types import Options, Record

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
    "inputs",
)
"""What tells runs of one table apart, where their files lie, or what of them is kept."""
_NOT_COMPARED = frozenset((*_IDENTITY, *NOT_SETTINGS))

_OF_THE_START = ("bottleneck_dim", "bottleneck_dropout")
"""Settings whose default depends on the method that trained the source model."""
_OF_TRAINING = ("config.optimizer", "config.lr")
"""Settings that a run of a method without training leaves empty."""

NOT_SET = "null"
"""The text of a setting without a value."""

_SEVERITY = re.compile(r"(.+)/(\d)")
MOST_LISTED = 3
"""Settings, and values of each, that a text lists."""

_PREFIXES = {"start": "start_", "selected": "", "last": "last_"}
"""Entry of a result -> what stands before the names of its scores in a frame and in ``runs.csv``."""


def read_runs(folders: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """A row for each finished adaptation in or below these folders, and why others are left out.

    The settings of a run are in the columns ``config.NAME``, those of the run that made its source model in
    ``source.NAME``, and the frame of its epochs in ``metrics``.
    """
    records = []
    left_out = []
    for path in _finished(folders):
        try:
            config = read_json(path / CONFIG)
            if config.get("command") == "adapt":
                records.append(_record(path, config))
        except UserError as error:
            left_out.append(f"left out: {error}")
    if not records:
        places = ", ".join(map(str, folders))
        raise UserError("; ".join([f"no finished adaptation in {places}", *left_out[:1]]), "give folders that hold one")
    runs = pd.json_normalize(records, max_level=1)
    order = {method: place for place, method in enumerate(methods.names())}
    return runs.sort_values("method", key=lambda names: names.map(order), kind="stable", ignore_index=True), left_out


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


def _record(path: Path, config: Record) -> Record:
    with reading(path, "a finished adaptation"):
        run = RunDirectory(path)
        result = run.result()
        metrics = pd.DataFrame(run.metrics())
        if "accuracy" not in result["start"]:
            raise UserError(f"{path}: its target has no labels", "read its scores from metrics.jsonl")
        source = _source_config(config["checkpoint"], path)
        start = source.get("method", "checkpoint")  # how the source model was made
        if config["checkpoint"] == "imagenet":
            start = "imagenet"
        return {
            "path": path,
            "config": _texts(config),
            "source": _texts(source),
            "metrics": metrics.reindex(columns=["epoch", "accuracy", "ece", *CRITERIA]).astype(float),
            "start": showable(start),
            "method": showable(config["method"]),
            "seed": int(config["seed"]),
            "machine": showable("torch {torch} on {device}".format(**config["versions"])),
            **_domains(config),
            **_scores(result),
        }


def _texts(settings: Options) -> Options:
    return {name: setting_text(value) for name, value in settings.items()}


def setting_text(value: Any) -> str:
    """A setting as texts are compared and shown: itself, or as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value)


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


def _domains(config: Record) -> Record:
    source = showable("+".join(config["source"] or []))
    images = (config.get("inputs") or {}).get("images")  # of a Python call
    target = showable("+".join(config["target"] or images or ["images"]))
    domains = {"dataset": showable(config["data"] or target), "severity": 0}
    corruption = _SEVERITY.fullmatch(target)
    if corruption:
        return {**domains, "pair": target, "column": corruption[1], "severity": int(corruption[2])}
    pair = "-".join(filter(None, (source, target)))
    return {**domains, "pair": pair, "column": pair}


def _scores(result: Record) -> Record:
    numbers: Record = {}
    for entry, prefix in _PREFIXES.items():
        scores = result.get(entry) or result["start"]
        for name in ("epoch", "accuracy", "ece"):
            numbers[prefix + name] = float(scores.get(name, math.nan))
        numbers[f"{prefix}class_accuracy"] = np.array(scores.get("per_class_accuracy") or [], float).tolist()
    return numbers


def label(start: str, method: str, variant: str = "") -> str:
    """Name of a row: with its start, unless that is the usual one."""
    name = method
    if start not in ("", "erm", "imagenet", "checkpoint"):
        name = f"{start}: {method}"
    if not variant:
        return name
    return f"{name} ({variant})"


def compared_settings(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting that decides the numbers of a run, or of the run that made its source model.

    Columns: path, start and method of the run, name of the setting with ``config.`` or ``source.``, and value
    """
    run = ["path", "start", "method"]
    settings = runs.filter(regex=rf"^(config|source)\.|^({'|'.join(run)})$").melt(run, var_name="name")
    is_compared = ~settings.name.str.partition(".")[2].isin(_NOT_COMPARED)
    is_unused = (settings.value == NOT_SET) & settings.name.isin(_OF_TRAINING)
    return settings[is_compared & ~is_unused].dropna()


def refuse_mixed_settings(runs: pd.DataFrame, varied: Collection[str]) -> None:
    """Raise an error for runs that differ in settings which their table does not compare."""
    settings = compared_settings(runs)
    settings = settings[~settings.name.isin([f"config.{name}" for name in varied])]
    options = frozenset(methods.settings())
    scopes = [_scope(setting, options) for setting in settings.itertuples()]
    differing = []
    for (name, scope), rows in settings.groupby(["name", scopes], sort=False):
        values = rows.drop_duplicates("value")
        if len(values) > 1:
            texts = [f"{row.value} in {row.path}" for row in values.itertuples()]
            differing.append(f"{setting_name(name)}{scope}: {first_few(texts, MOST_LISTED)}")
    if differing:
        listed = first_few(differing, MOST_LISTED, "; ")
        raise UserError(
            f"these runs were made with different settings and make no one table ({listed})",
            "give runs of the same settings",
        )


def _scope(setting: Any, options: Collection[str]) -> str:
    """Among which runs of a table a setting must be the same: those of a method, of a start, or all."""
    origin, _, name = setting.name.partition(".")
    if origin == "source" or name in _OF_THE_START:
        return f" of {setting.start}"
    own = _texts(own_defaults(setting.method))
    if name in options or own.get(name) == setting.value:
        return f" of {setting.method}"
    return ""


def setting_name(column: str) -> str:
    """``lr`` of the column ``config.lr``, ``source lr`` of ``source.lr``."""
    return column.removeprefix("config.").replace("source.", "source ")


@cache
def own_defaults(method: str) -> Options:
    """Defaults of training that a method has of its own; none for one of a package that is not installed here."""
    try:
        return methods.training_defaults(method)
    except UserError:
        return {}


def with_variants(runs: pd.DataFrame, varied: Iterable[str]) -> pd.DataFrame:
    """These runs and the ``variant`` of each: where it leaves the settings that most runs of its sweep have."""
    variants = pd.Series("", index=runs.index)
    for name in varied:
        values = runs[f"config.{name}"].fillna(NOT_SET)
        usual = values.value_counts(sort=False).idxmax()
        variants += (f", {name} " + values).where(values != usual, "")
    with_variant = runs.assign(variant=variants.str.removeprefix(", "))
    repeated = with_variant[with_variant.duplicated([*ROW, *PLACE], keep=False)]
    for _, paths in repeated.groupby([*ROW, *PLACE]).path:
        raise UserError(f"{' and '.join(map(str, paths))} hold the same run", "give one of them")
    return with_variant


def compared_everywhere(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on targets, from sources and with seeds that every start and method has: their means can be compared."""
    models = runs.assign(model=runs.start + ": " + runs.method)
    models_of_place = models.groupby(PLACE).model.transform("nunique")
    return runs[models_of_place == models.model.nunique()]


def runs_csv(runs: pd.DataFrame, varied: Sequence[str]) -> str:
    """One line for each run: compared settings, scores of source, selected and last model, and the selected epoch."""
    scores = [prefix + score for prefix in _PREFIXES.values() for score in ("accuracy", "ece")]
    lines = runs.sort_values(["pair", "start", "method", "seed"]).rename(columns={"epoch": "selected_epoch"})
    lines = lines.rename(columns={f"config.{name}": name for name in varied}).astype({"selected_epoch": int})
    columns = ["pair", "start", "method", *varied, "seed", "selected_epoch", *scores]
    return csv_text([columns, *lines[columns].round(4).to_numpy(object)])
