"""A report of finished runs: tables beside the paper's numbers, figures, one HTML page."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tllib_ancon.data.layouts.corrupted_images import ImageNetC
from tllib_ancon.laboratory import published
from tllib_ancon.laboratory.engine import RECORD
from tllib_ancon.laboratory.figures import figures
from tllib_ancon.laboratory.finished_runs import (
    MOST_LISTED,
    compared_settings,
    read_runs,
    refuse_mixed_settings,
    runs_csv,
    with_variants,
)
from tllib_ancon.laboratory.formats import rendered
from tllib_ancon.laboratory.paired import paired_table
from tllib_ancon.laboratory.plan import BenchmarkPlan, PlannedRun, load
from tllib_ancon.laboratory.tables import (
    CLASS_ACCURACY,
    INFOMAX,
    WITH_LABELS,
    Quantity,
    Table,
    mce_table,
    selection_table,
    table,
)
from tllib_ancon.runtime.text import counted, first_few, terminal
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.facts import facts_of
from tllib_ancon.training.files import read_json, write_bytes
from tllib_ancon.training.resolve import USUAL_IMAGES, USUAL_NETWORK, resolve
from tllib_ancon.training.source import Source


def write_report(folders: Sequence[str | Path], paper: str | None = None, out: str | Path = "report") -> str:
    """Write tables, figures and the page of the finished runs in these folders, beside a table of the paper."""
    paths = list(map(Path, folders))
    records = [read_json(path / RECORD) for path in paths if (path / RECORD).is_file()]
    plan = _plan(paper, records)
    varied = sorted(plan.varied) if plan else []
    finished, left_out = read_runs(paths)
    refuse_mixed_settings(finished, varied)
    runs = with_variants(finished, varied)
    tables = [table for table in _tables(runs, plan) if table is not None and len(table.cells)]
    pictures, unreadable = figures(runs[runs.labelled])
    content = {
        "title": _title(runs, plan),
        "remarks": [*_remarks(runs), *_remarks_on_plan(runs, plan), *_failures(records), *left_out, *unreadable],
        "tables": tables,
        "pictures": pictures,
    }
    text = rendered("report.md", **content)
    files = {
        "report.md": text.encode(),
        "runs.csv": runs_csv(runs, varied).encode(),
        "report.html": rendered("page.html", **content).encode(),
    }
    for picture in pictures:
        files[f"{picture.name}.png"] = picture.png
    _write_files(Path(out), files)
    written = f"{counted(len(tables), 'table')} and {counted(len(pictures), 'figure')} in {Path(out, 'report.html')}"
    return f"{text}\n{terminal(written)}"


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes(folder / name, content)


def _title(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> str:
    if plan is not None:
        return plan.title
    return f"{runs.dataset[0]}: {counted(len(runs), 'adaptation')}"


def _plan(paper: str | None, records: Sequence[Record]) -> BenchmarkPlan | None:
    """The plan of this table of the paper, or of the only table that benchmarks recorded."""
    recorded = {record["table"] for record in records}
    if paper:
        return load(paper)
    if len(recorded) == 1:
        return load(recorded.pop())
    return None


def _tables(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[Table | None]:
    labelled = runs[runs.labelled]
    if len(labelled):
        yield from _tables_with_labels(labelled, plan)
        yield paired_table(labelled)
        if plan is not None and "selection" in (plan.table, plan.extends):
            yield selection_table(labelled)
        if labelled.dataset.iloc[0] == ImageNetC.name:
            yield mce_table(labelled)
    yield table(INFOMAX, runs[~runs.labelled])


def _tables_with_labels(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[Table]:
    if plan and CLASS_ACCURACY.name in plan.published:
        yield table(CLASS_ACCURACY, runs, *_printed(plan, CLASS_ACCURACY, runs))
    for severity, part in runs.groupby("severity"):
        for quantity in WITH_LABELS:
            beside_paper = table(quantity, part, *_printed(plan, quantity, part))
            if severity:
                beside_paper = replace(beside_paper, title=f"{beside_paper.title}, severity {severity}")
            yield beside_paper


def _printed(plan: BenchmarkPlan | None, quantity: Quantity, runs: pd.DataFrame) -> list[list[published.Row]]:
    """Rows of the paper and of others for these runs."""
    if plan is None or quantity.name not in plan.published or runs.dataset.iloc[0] != plan.dataset:
        return []
    name = plan.published[quantity.name].format(severity=runs.severity.iloc[0])
    return [published.published(name), published.other(name)]


def _remarks(runs: pd.DataFrame) -> Iterator[str]:
    seeds = sorted(runs.seed.unique())
    noun = "seed"
    if len(seeds) > 1:
        noun = "seeds"
    machines = "; ".join(sorted(runs.machine.unique()))
    listed_seeds = ", ".join(map(str, seeds))
    yield f"{counted(len(runs), 'adaptation')}, {noun} {listed_seeds}; {machines}"
    for run in runs.drop_duplicates("method", keep="last").itertuples():
        defaults = ", ".join(f"{name} {value}" for name, value in run.method_defaults.items())
        if defaults:
            yield f"{run.method} by its own default: {defaults}"
    unlabelled = len(runs[~runs.labelled])
    if unlabelled:
        adaptations = counted(unlabelled, "adaptation")
        yield f"{adaptations} without labels: InfoMax is shown in place of accuracy and ECE"
    never_above = runs[runs.never_above_start].path
    if len(never_above):
        paths = first_few([str(path) for path in never_above], MOST_LISTED)
        adaptations = f"{counted(len(never_above), 'adaptation')} ({paths})"
        yield (
            f"no epoch scores above the source model in {adaptations}: a smaller learning rate often helps, and some "
            "labels tell which model is better (tllib-ancon certify RUN)"
        )


def _remarks_on_plan(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[str]:
    if plan is None:
        return
    dataset = runs.dataset[0]
    if dataset != plan.dataset:
        yield f"these runs are on {dataset}, the plan is for {plan.dataset}: nothing is set beside them"
    for deviation in dict.fromkeys(_deviations(runs, plan)):
        yield f"deviates from the paper: {deviation}"
    pairs = [pair for pair in plan.pairs if pair not in set(runs.pair)]
    if pairs:
        yield f"not run: pairs {', '.join(pairs)}"
    methods = [method for method in plan.methods if method not in set(runs.method)]
    if methods:
        yield f"not run: methods {', '.join(methods)}"
    yield from plan.notes


def _failures(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        for failure in record["failures"]:
            yield f"failed: {failure.get('run')}: {failure.get('reason')}"


def _deviations(runs: pd.DataFrame, plan: BenchmarkPlan) -> Iterator[str]:
    """Settings of the runs, and ``source NAME`` of their source models, that differ from the plan's."""
    planned = _planned_settings(plan)
    for run in runs.itertuples():
        yield from _different_settings(run.settings, planned.get(run.start, {}), plan.varied)
        weights = (run.source or {}).get("pretrained_weights")
        if weights is not None:
            yield f"pre-trained weights: {Path(weights).name}"


def _planned_settings(plan: BenchmarkPlan) -> dict[str, Record]:
    """Start -> settings that an adaptation of the plan from it would record."""
    first = plan.replace(
        pairs=plan.pairs[:1], methods=plan.methods[:1], seeds=plan.seeds[:1], variants=plan.variants[:1]
    )
    sources: dict[str | None, Record] = {}
    planned = {}
    for run in first.runs("ROOT", Path("OUT")):
        if run.command == "pretrain":
            sources[run.name] = run.config.to_dict()
        else:
            planned[run.start] = _recorded_settings(run, sources.get(run.needs, {}))
    return planned


def _recorded_settings(run: PlannedRun, source: Record) -> Record:
    config, _ = resolve(run.config, facts_of(run.config, Source(recorded_settings=dict(source))))
    settings = compared_settings(config.to_dict(), source)
    for name, value in settings.items():
        if value is None:
            settings[name] = {**USUAL_NETWORK, **USUAL_IMAGES}.get(name.removeprefix("source "))
    return dict(json.loads(json.dumps(settings)))


def _different_settings(settings: Record, planned: Record, varied: Collection[str]) -> Iterator[str]:
    """A setting of the source stage that differs as the adaptation's does is left out."""
    for name, value in settings.items():
        if name not in varied and planned.get(name) not in (value, None):
            of_adaptation = name.removeprefix("source ")
            difference = (settings.get(of_adaptation), planned.get(of_adaptation))
            if name == of_adaptation or difference != (value, planned[name]):
                yield f"{name.replace('_', '-')}: {value}, in the paper's plan {planned[name]}"
