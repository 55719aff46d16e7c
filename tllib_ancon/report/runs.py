"""Run directories as a report reads them, and the data frame that its tables and figures are made of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, InstanceOf, ValidationError, create_model

from tllib_ancon import assessing, methods
from tllib_ancon.config import INHERITED, PretrainConfig
from tllib_ancon.errors import UserError, one_line, reading
from tllib_ancon.selection import CRITERIA
from tllib_ancon.settings import flag_of, settings_of
from tllib_ancon.text import csv_text, showable
from tllib_ancon.training.files import read_bytes, read_json
from tllib_ancon.training.run import CONFIG, METRICS, NOT_SETTINGS, RESULT

IDENTITY = (
    *("command", "root", "source", "target", "method", "seed", "checkpoint", "pretrained_weights", "record_every"),
    *("save_epochs", "save_logits", "save_predictions", "inputs"),
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

NUMBERS = ("epoch", "accuracy", "ece", "per_class_accuracy", "infomax", "votes", "threshold")
ROW, PLACE = ["start", "method", "variant"], ["column", "severity", "seed"]
"""Columns of a frame that name a row of a table, and the place in it that one run fills."""

Found = TypeVar("Found")
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Text: TypeAlias = InstanceOf[str]  # names of files may hold what is no text


class _Form(BaseModel):
    """What a report reads of a file; other entries may stand beside."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Config(_Form):
    method: str
    seed: Count
    target: list[Text]
    versions: dict[str, Any]
    source: list[Text] | None = None
    data: Text | None = None
    checkpoint: Text | None = None


_NUMBERS: dict[str, Any] = dict.fromkeys(("votes", "threshold", *CRITERIA), (float, 0.0))
_NUMBERS |= dict.fromkeys(("accuracy", "ece"), (FiniteFloat, 0.0))
_Epoch: Any = create_model(
    "_Epoch", __base__=_Form, epoch=(Count, ...), per_class_accuracy=(list[float | None], []), **_NUMBERS
)


class _Result(_Form):
    criterion: str
    start: _Epoch
    selected: _Epoch | None = None
    last: _Epoch | None = None


class _Record(_Form):
    table: str
    failures: list[dict[str, Any]]


@dataclass(frozen=True)
class AdaptedRun:
    """A finished adaptation."""

    path: Path
    config: dict[str, Any]
    source: dict[str, Any]  # configuration of the run that made its source model; empty where that is not found
    result: dict[str, Any]
    metrics: list[dict[str, Any]]  # a line an epoch, the source model first
    before: str  # what was known of the source model without labels

    @property
    def method(self) -> str:
        return showable(str(self.config["method"]))

    @property
    def start(self) -> str:
        """How the source model was made: a pre-training method, ``imagenet``, or ``checkpoint``."""
        if self.config["checkpoint"] == "imagenet":
            return "imagenet"
        return showable(str(self.source.get("method", "checkpoint")))

    @property
    def place(self) -> tuple[str, str, int]:
        """The target; the pair of domains, or the corruption; and its severity, 0 where there is none."""
        target = showable("+".join(self.config["target"])) or self.images
        if found := SEVERITY.fullmatch(target):
            return target, found[1], int(found[2])
        source = showable("+".join(self.config["source"] or []))
        return target, f"{source}-{target}" if source else target, 0

    @property
    def images(self) -> str:
        """The names of the images that a Python call was given."""
        images = self.config["inputs"].get("images")
        return showable("+".join(images)) if isinstance(images, dict) else "images"

    @property
    def dataset(self) -> str:
        return str(self.config["data"] or self.images)

    @property
    def labelled(self) -> bool:
        """Whether the target had labels, and the run a record of accuracy and ECE."""
        return "accuracy" in self.result["start"]

    @property
    def own_defaults(self) -> dict[str, Any]:
        """Settings of the training that this run has by the default of its method, such as ``criterion`` with
        ``ancon-auto``: in these, runs of one table may differ."""
        try:
            defaults = methods.training_defaults(self.method)
        except UserError:  # a method of a package that is not installed here
            return {}
        return {name: value for name, value in defaults.items() if self.config.get(name) == value}

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the numbers of a run, those of its source stage under ``source NAME``."""
        stages = {"": self.config, "source ": self.source}
        decided = ((stage + name, name, value) for stage, config in stages.items() for name, value in config.items())
        return {called: value for called, name, value in decided if name not in (*IDENTITY, *NOT_SETTINGS)}


def frame(runs: Sequence[AdaptedRun], varied: Iterable[str] = ()) -> pd.DataFrame:
    """A row a run: the ``run``, where it belongs (``start``, ``method``, both as one ``label``, and ``variant``;
    ``column``, a pair of domains or a corruption, ``severity``, 0 where there is none, both as one ``pair``, and
    ``seed``), and numbers of its models, as :data:`MODELS` names them, NaN where it has none. A variant is where a run
    leaves the usual values of the settings that its table compares."""
    usual = usual_settings(runs, varied)
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        target, *place = run.place
        key = (run.start, run.method, variant(run, usual), *place, int(run.config["seed"]))
        if key in found:
            raise UserError(f"{found[key]['run'].path} and {run.path} hold the same run; give one of them")
        models = {prefix: run.result.get(which) or run.result["start"] for which, prefix in MODELS.items()}
        numbers = {prefix + name: model.get(name, math.nan) for prefix, model in models.items() for name in NUMBERS}
        named = {"label": label(run.start, run.method), **dict(zip((*ROW, *PLACE), key, strict=True))}
        named["pair"] = f"{place[0]}/{place[1]}" if place[1] else place[0]
        found[key] = {"run": run, "target": target, "labelled": run.labelled, **named, **numbers}
    return pd.DataFrame(list(found.values()))


def usual_settings(runs: Iterable[AdaptedRun], varied: Iterable[str]) -> dict[str, Any]:
    """The value that most runs have of each setting of a sweep."""
    values = {name: [run.config.get(name) for run in runs] for name in varied}
    return {name: max(own, key=own.count) for name, own in values.items() if own}


def variant(run: AdaptedRun, usual: Mapping[str, Any]) -> str:
    """Where this run leaves the usual settings of its sweep."""
    return ", ".join(f"{name} {run.config.get(name)}" for name, value in usual.items() if run.config.get(name) != value)


def label(start: str, method: str) -> str:
    """What a method is called beside others: with its start where that is not the usual one."""
    return method if start in ("", *USUAL_STARTS) else f"{start}: {method}"


def compared_everywhere(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on targets, from sources and with seeds that every start and method has: their means can be compared."""
    models = runs.assign(model=runs.start + ": " + runs.method)
    return runs[models.groupby(PLACE).model.transform("nunique") == models.model.nunique()]


def runs_csv(runs: pd.DataFrame, varied: Sequence[str] = ()) -> str:
    """A line a run, sorted by pair, start, method and seed: the settings that the table compares, accuracy (%) and ECE
    of source, selected and last model, and the selected epoch; empty where the target had no labels."""
    scores = [f"{prefix}{score}" for prefix in MODELS.values() for score in ("accuracy", "ece")]
    rows: list[list[Any]] = [["pair", "start", "method", *varied, "seed", "selected_epoch", *scores]]
    for one in runs.sort_values(["target", "column", "start", "method", "seed"]).to_dict("records"):
        values = [one["run"].config.get(name) for name in varied]
        numbers = ["" if math.isnan(one[score]) else f"{one[score]:.4f}" for score in scores]
        rows.append([one["pair"], one["start"], one["method"], *values, one["seed"], one["epoch"], *numbers])
    return csv_text(rows)


def read_runs(folders: Sequence[Path]) -> tuple[list[AdaptedRun], list[str]]:
    """Every finished adaptation in or below these folders, by method and path; and which were left out because a file
    of theirs is damaged, one text each."""
    paths: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; give run directories or folders that hold them")
        for path in sorted(result.parent for result in folder.rglob(RESULT)):
            paths.setdefault(path.resolve(), path)
    found, left_out = _readable(paths.values(), _read)
    if not found:
        why = f" ({left_out[0]})" if left_out else ""
        raise UserError(f"no finished adaptation in {', '.join(map(str, folders))}{why}")
    order = {method: place for place, method in enumerate(methods.names())}
    return sorted(found, key=lambda run: order.get(run.method, len(order))), left_out


def read_records(paths: Iterable[Path]) -> tuple[list[dict[str, Any]], list[str]]:
    """What ``benchmark`` wrote of its runs in the files that exist; and which are damaged, one text each."""
    return _readable(filter(Path.is_file, paths), lambda path: _formed(_Record, path, read_json(path)))


def _readable(paths: Iterable[Path], read: Callable[[Path], Found | None]) -> tuple[list[Found], list[str]]:
    """What is read at these paths, and why it is not at others."""
    found, left_out = [], []
    for path in paths:
        try:
            if (one := read(path)) is not None:
                found.append(one)
        except UserError as error:
            left_out.append(f"left out: {'' if str(error).startswith(f'{path} ') else f'{path}: '}{error}")
    return found, left_out


def refuse_mixed_settings(runs: Iterable[AdaptedRun], varied: Iterable[str]) -> None:
    """Refuse runs with different settings, beside those that their table compares: they make no one table."""
    seen: dict[str, dict[str, Path]] = {}
    options = {*methods.settings()}
    for run in runs:
        own = options.union(run.own_defaults)
        for name, value in run.settings.items():
            if name not in varied:
                of_start = name in OF_THE_START or name.startswith("source ")
                group = f" of {run.method}" if name in own else f" of {run.start}" if of_start else ""
                seen.setdefault(name + group, {}).setdefault(json.dumps(value), run.path)
    values = {name: [f"{value} in {path}" for value, path in made.items()] for name, made in seen.items()}
    if differing := some([f"{name}: {some(own)}" for name, own in values.items() if len(own) > 1], "; "):
        raise UserError(f"these runs were made with different settings and make no one table ({differing})")


def some(texts: Sequence[str], separator: str = ", ") -> str:
    """The first of many texts, and how many more there are."""
    more = [f"and {len(texts) - MOST_SAID} more"] if len(texts) > MOST_SAID else []
    return separator.join([*texts[:MOST_SAID], *more])


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of the ``metrics.jsonl`` of a run directory, oldest first."""
    file = path / METRICS
    with reading(file, "JSON"):
        return [_formed(_Epoch, file, read_json(file, line)) for line in read_bytes(file).splitlines()]


def _read(path: Path) -> AdaptedRun | None:
    if not (path / CONFIG).is_file():  # the folder of both stages of ``tllib-ancon run``
        return None
    config = read_json(path / CONFIG)
    if config.get("command") != "adapt":
        return None
    config = {**dict.fromkeys(_Config.model_fields), **_formed(_Config, path / CONFIG, config)}
    config["inputs"] = inputs if isinstance(inputs := config.get("inputs"), dict) else {}
    result, metrics = _formed(_Result, path / RESULT, read_json(path / RESULT)), read_metrics(path)
    models = [model for which in MODELS if (model := result.get(which)) is not None]
    if [line["epoch"] for line in metrics] != list(range(len(metrics))) or len(metrics) != models[-1]["epoch"] + 1:
        raise UserError(f"{path / METRICS} does not hold each epoch of the run, 0 to {models[-1]['epoch']}, once")
    if len({name in model for model in models for name in ("accuracy", "ece")}) > 1:
        raise UserError(f"{path / RESULT} has accuracy and ECE of some of its models and not of all")
    source: dict[str, Any] = {}
    if config["checkpoint"] is not None:  # of a run that may have been moved with this one
        made_by = Path(config["checkpoint"]).parent.parent
        places = [made_by, *(folder / made_by.parent.name / made_by.name for folder in path.parents[:3])]
        source = next((read_json(place / CONFIG) for place in places if (place / CONFIG).is_file()), {})
    with reading(path / RESULT, "a result"):
        before = "; ".join(assessing.in_words(result))
    return AdaptedRun(path, config, source, result, metrics, before)


def _formed(form: type[_Form], path: Path, content: Any) -> dict[str, Any]:
    """The entries of a file, of the types that a report reads."""
    try:
        return form.model_validate(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} has no {entry!r} that a report can read ({one_line(first['msg'])})") from None
