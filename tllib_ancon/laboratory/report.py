"""A report of finished runs: tables beside the paper's numbers, figures, one HTML page."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from tllib_ancon.data.folders import IMAGENET_C
from tllib_ancon.laboratory import plan as plans
from tllib_ancon.laboratory import published as numbers
from tllib_ancon.laboratory import tables
from tllib_ancon.laboratory.figures import figures
from tllib_ancon.laboratory.finished_runs import compared, decided, read_runs, refuse_mixed_settings, runs_csv, some
from tllib_ancon.laboratory.formats import rendered
from tllib_ancon.laboratory.local import RECORD
from tllib_ancon.laboratory.paired import paired_table
from tllib_ancon.laboratory.plan import Plan
from tllib_ancon.laboratory.tables import CLASS_ACCURACY, Quantity, Table, table
from tllib_ancon.text import terminal
from tllib_ancon.training.files import read_json, write_bytes
from tllib_ancon.training.resolve import ASSUMED, resolve
from tllib_ancon.training.trained import TrainedModel


def write_report(folders: Sequence[str | Path], paper: str | None = None, out: str | Path = "report") -> str:
    """Write tables, figures and the page of the finished runs in these folders, beside a table of the paper."""
    paths, out = [Path(folder) for folder in folders], Path(out)
    records = [read_json(folder / RECORD) for folder in paths if (folder / RECORD).is_file()]
    names = {record["table"] for record in records}
    name = paper or (names.pop() if len(names) == 1 else None)
    plan = plans.load(name) if name else None
    varied = sorted(plan.varied) if plan else []
    runs, left_out = read_runs(paths)
    refuse_mixed_settings(runs, varied)
    runs = compared(runs, varied)
    title = plan.title if plan else f"{runs.dataset[0]}: {_counted(len(runs), 'adaptation')}"
    made = _tables(runs, plan, varied)
    pictures, not_shown = figures(runs, varied)
    remarks = [*_remarks(runs, plan, records), *left_out, *not_shown]
    content = {"title": title, "remarks": remarks, "tables": made, "pictures": pictures}
    text, page = (rendered(template, **content) for template in ("report.md", "page.html"))
    files = {"report.md": text.encode(), "runs.csv": runs_csv(runs, varied).encode(), "report.html": page.encode()}
    out.mkdir(parents=True, exist_ok=True)
    for name, written in (files | {f"{picture.name}.png": picture.png for picture in pictures}).items():
        write_bytes(out / name, written)
    where = f"{_counted(len(made), 'table')} and {_counted(len(pictures), 'figure')} in {out / 'report.html'}"
    return f"{text}\n{terminal(where)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _tables(runs: pd.DataFrame, plan: Plan | None, varied: Sequence[str]) -> list[Table]:
    labelled, unlabelled = runs[runs.labelled], runs[~runs.labelled]
    made: list[Table | None] = []
    if len(labelled):
        dataset = labelled.dataset.iloc[0]
        if plan and CLASS_ACCURACY.name in plan.published:
            made.append(table(CLASS_ACCURACY, labelled, *_printed(plan, CLASS_ACCURACY, 0, dataset)))
        for severity, part in labelled.groupby("severity"):
            for quantity in tables.WITH_LABELS:
                one = table(quantity, part, *_printed(plan, quantity, severity, dataset))
                made.append(replace(one, title=f"{one.title}, severity {severity}") if severity else one)
        made += [paired_table(labelled), None if varied else tables.selection_table(labelled)]
        made += [tables.mce_table(labelled)] if dataset == IMAGENET_C else []
    without = [table(quantity, unlabelled) for quantity in tables.WITHOUT_LABELS] if len(unlabelled) else []
    return [one for one in (*made, *without) if one is not None and len(one.cells)]


def _printed(plan: Plan | None, quantity: Quantity, severity: int, dataset: str) -> list[list[numbers.Row]]:
    if plan is None or quantity.name not in plan.published or dataset != plan.dataset:
        return []
    name = plan.published[quantity.name].format(severity=severity)
    return [numbers.published(name), numbers.other(name)]


def _remarks(runs: pd.DataFrame, plan: Plan | None, records: Sequence[dict[str, Any]]) -> list[str]:
    seeds = sorted(runs.seed.unique())
    numbered = f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"
    remarks = [f"{_counted(len(runs), 'adaptation')}, {numbered}; {'; '.join(sorted(runs.machine.unique()))}"]
    for method, own in dict(zip(runs.method, runs.own_defaults, strict=True)).items():
        settings = ", ".join(f"{name} {value}" for name, value in own.items())
        remarks += [f"{method} by its own default: {settings}"] if settings else []
    if unlabelled := int((~runs.labelled).sum()):
        without = f"{_counted(unlabelled, 'adaptation')} without labels"
        remarks.append(f"{without}: InfoMax, votes and δ are shown in place of accuracy and ECE")
    if worse := [str(run.path) for run in runs.itertuples() if run.result.get("better_than_start") is False]:
        remarks.append(
            f"no epoch scores above the source model in {_counted(len(worse), 'adaptation')} ({some(worse)}): a "
            "smaller learning rate often helps, and some labels tell which model is better (tllib-ancon certify "
            "RUN)"
        )
    if known := [f"{run.pair}: {run.before}" for run in runs.itertuples() if run.before]:
        remarks.append(some([*dict.fromkeys(known)], ". "))
    if plan is not None:
        data = runs.dataset[0]
        if data != plan.dataset:
            remarks.append(f"these runs are on {data}, the plan is for {plan.dataset}: nothing is set beside them")
        remarks += [f"deviates from the paper: {text}" for text in _deviations(runs, plan)]
        pairs = {*runs.column.where(runs.severity == 0, runs.target)}
        for what, planned, made in (("pairs", plan.pairs, pairs), ("methods", plan.methods, {*runs.method})):
            missing = [name for name in planned if name not in made]
            remarks += [f"not run: {what} {', '.join(missing)}"] if missing else []
        remarks += plan.notes
    return remarks + [
        f"failed: {one.get('run')}: {one.get('reason')}" for record in records for one in record["failures"]
    ]


def _deviations(runs: pd.DataFrame, plan: Plan) -> list[str]:
    """Settings of the runs, and ``source NAME`` of their source models, that differ from the plan's."""
    planned: dict[str, dict[str, Any]] = {}
    of_plan = {run.name: run for run in plan.runs("ROOT", Path("OUT"))}
    for one in of_plan.values():
        start = one.name.split("/")[0]
        if one.command == "adapt" and start not in planned:
            source = of_plan[one.needs].config.to_dict() if one.needs else {}
            known = decided(resolve(one.config, TrainedModel(recorded=source)).to_dict(), source)
            known |= {name: ASSUMED.get(name.split()[-1]) for name, value in known.items() if value is None}
            planned[start] = json.loads(json.dumps(known))
    found = []
    for run in runs.itertuples():
        expected = planned.get(run.start, {})
        for name, value in run.settings.items():
            own = name.removeprefix("source ")
            said = own != name and (value, expected.get(name)) == (run.config.get(own), expected.get(own))
            if name in expected and name not in plan.varied and expected[name] not in (value, None) and not said:
                found.append(f"{name.replace('_', '-')}: {value}, in the paper's plan {expected[name]}")
        weights = (run.source or run.config).get("pretrained_weights")
        found += [f"pre-trained weights: {Path(weights).name}"] if weights is not None else []
    return list(dict.fromkeys(found))
