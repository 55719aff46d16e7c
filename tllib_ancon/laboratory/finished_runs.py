"""Run directories as a report reads them, and the data frame that its tables and figures are made of."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tllib_ancon import assessing, methods
from tllib_ancon.config import PretrainConfig
from tllib_ancon.errors import UserError, reading
from tllib_ancon.settings import flag_of, settings_of
from tllib_ancon.text import csv_text, showable
from tllib_ancon.training.files import read_json
from tllib_ancon.training.resolve import INHERITED
from tllib_ancon.training.run import CONFIG, NOT_SETTINGS, RESULT, RunDirectory

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
    "save_predictions",
    "inputs",
)
"""What tells runs of one table apart, where their files lie, or what of them is kept."""

OF_THE_START = frozenset(name for name in INHERITED if flag_of(settings_of(PretrainConfig)[name]).defaults)
"""Inherited settings that depend on the method that trained the start, as the width of the bottleneck."""

USUAL_STARTS = ("erm", "imagenet", "checkpoint")
SEVERITY = re.compile(r"(.+)/(\d)")
MOST_SAID = 3
"""Settings, values of each, and runs that a text lists."""

MODELS = {"start": "start_", "selected": "", "last": "last_"}
"""Entry of a result -> what stands before the names of its numbers in a frame and in ``runs.csv``."""

NUMBERS = ("epoch", "accuracy", "ece", "infomax", "votes", "threshold")
ROW, PLACE = ["start", "method", "variant"], ["column", "severity", "seed"]
"""Columns of a frame that name a row of a table, and the place in it that one run fills."""


def compared(runs: pd.DataFrame, varied: Iterable[str] = ()) -> pd.DataFrame:
    """These runs and the ``variant`` of each, by the settings that its table compares."""
    usual = usual_settings(runs.config, varied)
    runs = runs.assign(variant=[variant(config, usual) for config in runs.config])
    for _, same in runs[runs.duplicated([*ROW, *PLACE], keep=False)].groupby([*ROW, *PLACE]).path:
        raise UserError(f"{' and '.join(map(str, same))} hold the same run; give one of them")
    return runs


def usual_settings(configs: Iterable[Mapping[str, Any]], varied: Iterable[str]) -> dict[str, Any]:
    """The value that most runs have of each setting of a sweep."""
    values = {name: [config.get(name) for config in configs] for name in varied}
    return {name: max(own, key=own.count) for name, own in values.items() if own}


def variant(config: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Where a run leaves the usual settings of its sweep."""
    return ", ".join(f"{name} {config.get(name)}" for name, value in usual.items() if config.get(name) != value)


def label(start: str, method: str) -> str:
    """Name of a method in a table: with its start, unless that is the usual one."""
    return method if start in ("", *USUAL_STARTS) else f"{start}: {method}"


def compared_everywhere(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on targets, from sources and with seeds that every start and method has: their means can be compared."""
    models = runs.assign(model=runs.start + ": " + runs.method)
    return runs[models.groupby(PLACE).model.transform("nunique") == models.model.nunique()]


def runs_csv(runs: pd.DataFrame, varied: Sequence[str] = ()) -> str:
    """One line for each run: compared settings, scores of source, selected and last model, and the selected epoch."""
    scores = [f"{prefix}{score}" for prefix in MODELS.values() for score in ("accuracy", "ece")]
    ordered = runs.sort_values(["target", "column", "start", "method", "seed"])
    varying = {name: [config.get(name) for config in ordered.config] for name in varied}
    texts = ordered[scores].map("{:.4f}".format).replace("nan", "")
    ordered = ordered.assign(selected_epoch=ordered.epoch.astype(int), **varying, **texts)
    columns = ["pair", "start", "method", *varied, "seed", "selected_epoch", *scores]
    return csv_text([columns, *ordered[columns].to_numpy(object)])


def read_runs(folders: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """A row for each finished adaptation in or below these folders, and why damaged ones are left out."""
    paths: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; give run directories or folders that hold them")
        for path in sorted(result.parent for result in folder.rglob(RESULT)):
            paths.setdefault(path.resolve(), path)
    found, left_out = [], []
    for path in paths.values():
        try:
            found += _read(path)
        except UserError as error:
            left_out.append(f"left out: {error}")
    if not found:
        why = f" ({left_out[0]})" if left_out else ""
        raise UserError(f"no finished adaptation in {', '.join(map(str, folders))}{why}; give folders that hold one")
    order = {method: place for place, method in enumerate(methods.names())}
    return pd.DataFrame(sorted(found, key=lambda run: order.get(run["method"], len(order)))), left_out


def refuse_mixed_settings(runs: pd.DataFrame, varied: Iterable[str]) -> None:
    """Raise an error for runs that differ in settings which their table does not compare."""
    seen: dict[str, dict[str, Path]] = {}
    options = {*methods.settings()}
    for run in runs.itertuples():
        own = options.union(run.own_defaults)
        for name, value in run.settings.items():
            if name not in varied:
                of_start = name in OF_THE_START or name.startswith("source ")
                group = f" of {run.method}" if name in own else f" of {run.start}" if of_start else ""
                seen.setdefault(name + group, {}).setdefault(json.dumps(value), run.path)
    values = {name: [f"{value} in {path}" for value, path in made.items()] for name, made in seen.items()}
    if differing := some([f"{name}: {some(own)}" for name, own in values.items() if len(own) > 1], "; "):
        raise UserError(
            f"these runs were made with different settings and make no one table ({differing}); give runs of the same "
            "settings"
        )


def some(texts: Sequence[str], separator: str = ", ") -> str:
    more = [f"and {len(texts) - MOST_SAID} more"] if len(texts) > MOST_SAID else []
    return separator.join([*texts[:MOST_SAID], *more])


def _read(path: Path) -> list[dict[str, Any]]:
    config = read_json(path / CONFIG) if (path / CONFIG).is_file() else {}
    if config.get("command") != "adapt":
        return []
    with reading(path, "a finished adaptation"):
        run, source = RunDirectory(path), _source(config["checkpoint"], path)
        result, metrics = run.result(), run.metrics()
        for line in metrics:  # a number beyond the range of floats is damage
            np.array([value for value in line.values() if isinstance(value, int)], float)
        images = (config.get("inputs") or {}).get("images")  # of a Python call
        domains = {name: showable("+".join(config[name] or [])) for name in ("source", "target")}
        images = showable("+".join(images)) if isinstance(images, dict) else "images"
        target, method = domains["target"] or images, showable(config["method"])
        corrupted = SEVERITY.fullmatch(target)
        column = corrupted[1] if corrupted else f"{domains['source']}-{target}" if domains["source"] else target
        is_imagenet = config["checkpoint"] == "imagenet"
        start = "imagenet" if is_imagenet else showable(source.get("method", "checkpoint"))
        found = {
            "path": path,
            "config": config,
            "source": source,  # of the run that made its source model; empty if that is not found
            "result": result,
            "metrics": metrics,  # a line an epoch, the source model first
            "settings": decided(config, source),
            "start": start,  # how the source model was made: a pre-training method, ``imagenet``, or ``checkpoint``
            "method": method,
            "label": label(start, method),
            "target": target,
            "column": column,  # the pair of domains, or the corruption
            "severity": int(corrupted[2]) if corrupted else 0,  # of the corruption
            "pair": target if corrupted else column,
            "seed": int(config["seed"]),
            "dataset": showable(config["data"] or images),
            "machine": showable("torch {torch} on {device}".format(**config["versions"])),
            "labelled": "accuracy" in result["start"],  # whether the target had labels
            "own_defaults": _own_defaults(method, config),  # in these, runs of one table may differ
            "before": "; ".join(assessing.before_adapting(result)),
        }
        for which, prefix in MODELS.items():
            model = result.get(which) or result["start"]
            found |= {prefix + name: float(model.get(name, math.nan)) for name in NUMBERS}
            found[f"{prefix}per_class_accuracy"] = model.get("per_class_accuracy")
        return [found]


def decided(config: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide the numbers of a run, those of its source stage under ``source NAME``."""
    stages = {"": config, "source ": source}
    both = ((stage + name, name, value) for stage, own in stages.items() for name, value in own.items())
    return {called: value for called, name, value in both if name not in (*IDENTITY, *NOT_SETTINGS)}


def _own_defaults(method: str, config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        defaults = methods.training_defaults(method)
    except UserError:  # a method of a package that is not installed here
        return {}
    return {name: value for name, value in defaults.items() if config.get(name) == value}


def _source(checkpoint: str | None, path: Path) -> dict[str, Any]:
    if checkpoint is None:
        return {}
    made_by = Path(checkpoint).parent.parent
    places = [made_by, *(folder / made_by.parent.name / made_by.name for folder in path.parents[:3])]
    return next((read_json(place / CONFIG) for place in places if (place / CONFIG).is_file()), {})
