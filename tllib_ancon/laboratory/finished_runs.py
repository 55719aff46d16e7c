"""Finished runs as one data frame, which the tables and figures of a report are made of."""

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pandas as pd

from tllib_ancon import methods
from tllib_ancon.runs.directory import CONFIG, NOT_SETTINGS, RESULT, RunDirectory
from tllib_ancon.runs.files import read_json
from tllib_ancon.runtime.errors import UserError, reading
from tllib_ancon.runtime.text import showable
from tllib_ancon.runtime.types import Record

ROW = ["start", "method", "variant"]
"""Columns of a frame that name a row of a table."""
PLACE = ["column", "severity", "seed"]
"""Columns of a frame that name the place in a row that one run fills."""
_SCORES = ["epoch", "accuracy", "mean_class_accuracy", "ece"]

_IDENTITY = ("command", "root", "source", "target", "method", "seed", "checkpoint", "pretrained_weights")
_NOT_COMPARED = frozenset((*_IDENTITY, "inputs", *NOT_SETTINGS))
"""What tells runs of one table apart, where their files lie, or what of them is kept."""

NOT_SET = str(None)
"""The text of a setting without a value."""

_SEVERITY = re.compile(r"(.+)/(\d)")


def read_runs(folders: Sequence[Path]) -> tuple[pd.DataFrame, list[str]]:
    """A row for each finished adaptation in or below these folders, and why others are left out.

    The column ``settings`` has the settings of a run and of the run that made its source model, as texts by name.
    ``metrics`` has the frame of its epochs. Scores of the selected model have their names, those of the source model
    begin with ``start_``.
    """
    records = []
    left_out = []
    files = chain.from_iterable(folder.rglob(CONFIG) for folder in folders)
    for path in sorted({file.parent for file in files}):
        try:
            if (path / RESULT).is_file() and read_json(path / CONFIG).get("command") == "adapt":
                records.append(_record(path))
        except UserError as error:
            left_out.append(f"left out: {error}")
    if not records:
        places = ", ".join(map(str, folders))
        raise UserError("; ".join([f"no finished adaptation in {places}", *left_out[:1]]), "give folders that hold one")
    order = {method: place for place, method in enumerate(methods.names())}
    runs = pd.DataFrame(records).sort_values("method", key=lambda names: names.map(order), kind="stable")
    return _with_variants(runs.reset_index(drop=True)), left_out


def _record(path: Path) -> Record:
    with reading(path, "a finished adaptation"):
        config = read_json(path / CONFIG)
        run = RunDirectory(path)
        result = run.result()
        if "accuracy" not in result["start"]:
            raise UserError(f"{path}: its target has no labels", "read its scores from metrics.jsonl")
        source = _source_config(config["checkpoint"])
        start = source.get("method", "checkpoint")  # how the source model was made
        if config["checkpoint"] == "imagenet":
            start = "imagenet"
        return {
            "path": path,
            "settings": {**_compared(config), **{f"source {name}": text for name, text in _compared(source).items()}},
            "metrics": pd.DataFrame(run.metrics()).reindex(columns=_SCORES).astype(float),
            "start": showable(start),
            "method": showable(config["method"]),
            "seed": int(config["seed"]),
            "machine": showable("torch {torch} on {device}".format(**config["versions"])),
            **_domains(config),
            **{name: float(result["selected"].get(name, "nan")) for name in _SCORES},
            **{f"start_{name}": float(result["start"].get(name, "nan")) for name in _SCORES},
        }


def _compared(config: Record) -> dict[str, str]:
    """The settings that decide the numbers of a run, as texts."""
    return {name: str(value) for name, value in config.items() if name not in _NOT_COMPARED}


def _source_config(checkpoint: str | None) -> Record:
    """The record of the run that made the source model; empty where there is none."""
    if checkpoint is None:
        return {}
    source = Path(checkpoint)
    if source.suffix:  # of a file in the run's folder of checkpoints
        source = source.parent.parent
    if not (source / CONFIG).is_file():
        return {}
    return read_json(source / CONFIG)


def _domains(config: Record) -> Record:
    images = (config.get("inputs") or {}).get("images")  # of a Python call
    target = showable("+".join(config["target"] or images or ["images"]))
    pair = "-".join(filter(None, (showable("+".join(config["source"] or [])), target)))
    domains = {"dataset": showable(config["data"] or target), "pair": pair, "column": pair, "severity": 0}
    corruption = _SEVERITY.fullmatch(target)
    if corruption:
        domains |= {"pair": target, "column": corruption[1], "severity": int(corruption[2])}
    return domains


def _with_variants(runs: pd.DataFrame) -> pd.DataFrame:
    """These runs and the ``variant`` of each: the settings in which it differs from most runs of its method."""
    settings = pd.DataFrame(runs.settings.tolist(), runs.index).fillna(NOT_SET)
    variants = pd.Series("", index=runs.index)
    for name in settings:
        values = settings[name]
        usual = values.groupby([runs.start, runs.method]).transform(lambda of_row: of_row.mode()[0])
        variants += (f", {name} " + values).where(values != usual, "")
    with_variant = runs.assign(variant=variants.map(showable).str.removeprefix(", "))
    for _, paths in with_variant[with_variant.duplicated([*ROW, *PLACE], keep=False)].groupby([*ROW, *PLACE]).path:
        raise UserError(f"{' and '.join(map(str, paths))} hold the same run", "give one of them")
    return with_variant


def label(start: str, method: str, variant: str = "") -> str:
    """Name of a row: with its start, unless that is the usual one."""
    name = method
    if start not in ("", "erm", "imagenet", "checkpoint"):
        name = f"{start}: {method}"
    if variant:
        name += f" ({variant})"
    return name
