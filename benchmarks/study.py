"""A study: cells, methods and seeds from a TOML file, and one row of the schema for each run and number of views."""

import hashlib
import itertools
import json
import platform
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from benchmarks import tomllib
from benchmarks.families import FAMILIES, KINDS, Cell
from tllib_ancon import adapt, expected_calibration_error, predict
from tllib_ancon.runtime.errors import UserError

STUDIES = Path(__file__).parent / "studies"
RESULTS = Path(__file__).parent / "results"
HEADER = ["study", "commit", "python", "torch", "pillow", "device", "date"]
"""Columns that are the same for all rows of a study. They stand in ``STUDY.toml`` beside ``STUDY.csv``."""
COLUMNS = [
    *("family", "source", "target", "kind", "network", "images", "classes", "method", "settings_sha256", "seed"),
    *("epochs", "views", "start", "adabn", "last", "selected", "upper", "ece", "per_epoch", "seconds"),
]
KEY = ["family", "source", "target", "kind", "network", "method", "settings_sha256", "seed", "epochs"]
"""Columns that tell runs apart. A run has a row for each number of views."""
FIELDS = {"question", "judge", "seeds", "epochs", "images", "search", "methods", "cells", "longer"}
SOURCE_MODEL = {"method": "none"}
"""Settings of a method that predicts with the source model and adapts nothing."""


class Run(NamedTuple):
    """One adaptation."""

    cell: Cell
    method: str
    settings: tuple[tuple[str, Any], ...]
    teacher: Cell | None = None

    @property
    def key(self):
        settings = dict(self.settings)
        cell = self.cell
        names = (cell.family, cell.source, cell.target, cell.kind, cell.network, self.method, sha256_of(settings))
        return (*names, cell.seed, settings["epochs"])


@dataclass(frozen=True)
class Study:
    """Contents of a TOML file, checked."""

    name: str
    content: dict[str, Any]

    @classmethod
    def load(cls, name):
        file = STUDIES / f"{name}.toml"
        if not file.exists():
            names = ", ".join(sorted(path.stem for path in STUDIES.glob("*.toml")))
            raise UserError(f"no study {name!r}. Choose one of: {names}")
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        unknown = content.keys() - FIELDS
        if unknown:
            raise UserError(f"{file.name}: unknown {', '.join(sorted(unknown))}. Use {', '.join(sorted(FIELDS))}")
        return cls(name, content)

    @property
    def images(self):
        return self.content.get("images", 800)

    def cells(self, seed):
        """Every combination of pairs, kinds and networks that a table ``[[cells]]`` lists → the cell of a teacher."""
        cells = {}
        for group in self.content["cells"]:
            family = group["family"]
            for pair in group["pairs"]:
                source, target = pair.split(" > ")
                for kind in group.get("kinds", KINDS):
                    for network in group.get("networks", [FAMILIES[family].network]):
                        cell = Cell(family, source, target, kind, network, seed)
                        cells[cell] = cell._replace(**group["teacher"]) if "teacher" in group else None
        return cells

    def runs(self):
        """All runs, cell by cell, each once. A share of the cells may be trained for more epochs."""
        runs = []
        for plan in (self.content, self.content.get("longer")):
            if plan is None:
                continue
            for seed in plan["seeds"]:
                cells = list(self.cells(seed).items())[:: plan.get("every", 1)]
                for (cell, teacher), epochs in itertools.product(cells, plan["epochs"]):
                    runs += self._of_cell(cell, teacher, epochs)
        return list({run.key: run for run in runs}.values())

    def _of_cell(self, cell, teacher, epochs):
        runs = []
        for name, settings in self.methods().items():
            whole = tuple(sorted({"epochs": epochs, **settings}.items()))
            runs.append(Run(cell, name, whole, teacher))
        return runs

    def methods(self):
        """Name → settings of ``adapt``; a search repeats each method with each value."""
        methods = self.content["methods"]
        for setting, values in self.content.get("search", {}).items():
            searched = {}
            for name, settings in methods.items():
                for value in values:
                    searched[f"{name}, {setting} {value:g}"] = {**settings, setting: value}
            methods = searched
        return methods


def sha256_of(settings):
    """The first twelve digits of a hash of a method's settings."""
    text = json.dumps(settings, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=STUDIES, capture_output=True, text=True, check=True).stdout.strip()


def provenance(study):
    """The header of a study that is run now, from this checkout."""
    commit = git("rev-parse", "--short=12", "HEAD")
    if git("diff", "--name-only", "HEAD", "--", ":/", ":!/benchmarks/judged.csv"):  # which a judgement itself changes
        commit += "-dirty"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {platform.machine()}"
    values = (study.name, commit, platform.python_version(), version("torch"), version("pillow"), device)
    return dict(zip(HEADER, (*values, datetime.now(timezone.utc).date().isoformat()), strict=True))


def read(name, folder=RESULTS):
    """The rows of a study with all columns of the schema."""
    header = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    rows = pd.read_csv(folder / f"{name}.csv", dtype={"source": str, "target": str, "settings_sha256": str})
    return rows.assign(**header)[[*HEADER, *COLUMNS]]


def keys_of(file):
    """The runs that a file of rows holds."""
    if not file.exists():
        return set()
    rows = pd.read_csv(file, dtype={"source": str, "target": str, "settings_sha256": str})
    return set(rows[KEY].itertuples(index=False, name=None))


def rows_of(laboratory, run):
    """Adapt, and give a row for each number of views."""
    torch.set_num_threads(1)
    task = opened(laboratory, run.cell)
    settings = dict(run.settings)
    adapts = settings.get("method") != SOURCE_MODEL["method"]
    reference = reference_of(laboratory, run.cell, adapts)
    began = time.process_time()
    model = task.model
    per_epoch = [reference["start", 1]]
    if adapts:
        if settings.pop("teacher", False):
            settings["teacher"] = laboratory.source_model(run.teacher)
        result = adapt(task.model, task.images, labels=task.labels.tolist(), **{**common(task), **settings})
        model = result.model
        per_epoch = [round(epoch["accuracy"], 2) for epoch in result.metrics]
    seconds = round(time.process_time() - began, 1)
    rows = []
    for views in task.views:
        probabilities = predictions(model, task, views)
        row = dict(zip(KEY, run.key, strict=True)) | {
            "images": len(task.labels),
            "classes": task.classes,
            "views": views,
            "start": reference["start", views],
            "adabn": reference["adabn", views],
            "last": per_epoch[-1],
            "selected": accuracy(probabilities, task.labels),
            "upper": None,
            "ece": round(float(expected_calibration_error(probabilities, task.labels)), 4),
            "per_epoch": " ".join(map(str, per_epoch)),
            "seconds": seconds,
        }
        rows.append(row)
    return rows


@lru_cache(maxsize=2)
def opened(laboratory, cell):
    return laboratory.task(cell)


@lru_cache(maxsize=4)
def reference_of(laboratory, cell, adapts):
    """Accuracies of the source model and of AdaBN by each number of views."""
    task = opened(laboratory, cell)
    adabn = None
    if adapts and any(isinstance(module, torch.nn.BatchNorm2d) for module in task.model.modules()):
        adabn = adapt(task.model, task.images, method="adabn", epochs=1, **common(task)).model
    reference = {}
    for views in task.views:
        reference["start", views] = accuracy(predictions(task.model, task, views), task.labels)
        reference["adabn", views] = None if adabn is None else accuracy(predictions(adabn, task, views), task.labels)
    return reference


def common(task):
    """Settings of ``adapt`` that all methods share."""
    return {**task.settings, "threads": 1, "workers": 0, "quiet": True}


def predictions(model, task, views):
    settings = {name: value for name, value in common(task).items() if name != "seed"}
    return predict(model, task.images, views=views, **settings).probabilities


def accuracy(probabilities, labels):
    return round(100 * float((np.asarray(probabilities).argmax(1) == labels).mean()), 2)
