"""A report of finished runs: tables beside the paper's numbers, figures, one HTML page."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, select_autoescape

from tllib_ancon.laboratory import published
from tllib_ancon.laboratory.benchmark import RECORD
from tllib_ancon.laboratory.figures import figures
from tllib_ancon.laboratory.finished_runs import (
    NOT_SET,
    compared_settings,
    own_defaults,
    read_runs,
    refuse_mixed_settings,
    runs_csv,
    setting_name,
    setting_text,
    with_variants,
)
from tllib_ancon.laboratory.paired import paired_table
from tllib_ancon.laboratory.plan import BenchmarkPlan, load
from tllib_ancon.laboratory.tables import ACCURACY, CLASS_ACCURACY, ECE, Quantity, Table, selection_table, table
from tllib_ancon.runs.files import read_json, write_bytes
from tllib_ancon.runtime import text
from tllib_ancon.runtime.text import counted, terminal
from tllib_ancon.runtime.types import Options, Record


def write_report(folders: Sequence[str | Path], paper: str | None = None, out: str | Path = "report") -> str:
    """Write tables, figures and the page of the finished runs in these folders, beside a table of the paper."""
    paths = list(map(Path, folders))
    records = [read_json(path / RECORD) for path in paths if (path / RECORD).is_file()]
    plan = _plan(paper, records)
    varied = sorted(plan.varied) if plan else []
    finished, left_out = read_runs(paths)
    refuse_mixed_settings(finished, varied)
    runs = with_variants(finished, varied)
    tables = [table for table in _tables(runs, plan) if table is not None]
    pictures, unreadable = figures(runs)
    content = {
        "title": plan.title if plan else f"{runs.dataset[0]}: {counted(len(runs), 'adaptation')}",
        "remarks": [*_remarks(runs), *_remarks_on_plan(runs, plan), *_failures(records), *left_out, *unreadable],
        "tables": tables,
        "pictures": pictures,
    }
    markdown = rendered("report.md", **content)
    files = {
        "report.md": markdown.encode(),
        "runs.csv": runs_csv(runs, varied).encode(),
        "report.html": rendered("page.html", **content).encode(),
        **{f"{picture.name}.png": picture.png for picture in pictures},
    }
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes(folder / name, data)
    written = f"{counted(len(tables), 'table')} and {counted(len(pictures), 'figure')} in {folder / 'report.html'}"
    return f"{markdown}\n{terminal(written)}"


def rendered(template: str, **content: Any) -> str:
    """The text of one of the templates: ``report.md``, ``table.md`` or ``page.html``, which loads nothing."""
    options: Options = {"autoescape": select_autoescape(["html"]), "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(
        loader=PackageLoader("tllib_ancon", "laboratory/templates"), finalize=text.html, **options
    )
    environment.filters |= {"md": text.markdown, "base64": lambda png: b64encode(png).decode()}
    return environment.get_template(template).render(content)


def _plan(paper: str | None, records: Sequence[Record]) -> BenchmarkPlan | None:
    """The plan of this table of the paper, or of the only table that benchmarks recorded."""
    tables = {paper} if paper else {record["table"] for record in records}
    if len(tables) != 1:
        return None
    return load(tables.pop())


def _tables(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[Table | None]:
    if plan and CLASS_ACCURACY.name in plan.published:
        yield table(CLASS_ACCURACY, runs, *_printed(plan, CLASS_ACCURACY, runs))
    for severity, part in runs.groupby("severity"):
        for quantity in (ACCURACY, ECE):
            beside_paper = table(quantity, part, *_printed(plan, quantity, part))
            if severity:
                beside_paper = replace(beside_paper, title=f"{beside_paper.title}, severity {severity}")
            yield beside_paper
    yield paired_table(runs)
    if plan is not None and "selection" in (plan.table, plan.extends):
        yield selection_table(runs)


def _printed(plan: BenchmarkPlan | None, quantity: Quantity, runs: pd.DataFrame) -> list[list[published.Row]]:
    """Rows of the paper and of others for these runs."""
    if plan is None or quantity.name not in plan.published or runs.dataset.iloc[0] != plan.dataset:
        return []
    name = plan.published[quantity.name].format(severity=runs.severity.iloc[0])
    return [published.published(name), published.other(name)]


def _remarks(runs: pd.DataFrame) -> Iterator[str]:
    seeds = ", ".join(map(str, sorted(runs.seed.unique())))
    machines = "; ".join(sorted(runs.machine.unique()))
    yield f"{counted(len(runs), 'adaptation')}, seeds {seeds}; {machines}"
    for run in runs.drop_duplicates("method").itertuples():
        defaults = [f"{name} {value}" for name, value in own_defaults(run.method).items()]
        if defaults:
            yield f"defaults of {run.method}: {', '.join(defaults)}"


def _remarks_on_plan(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[str]:
    if plan is None:
        return
    dataset = runs.dataset[0]
    if dataset != plan.dataset:
        yield f"these runs are on {dataset}, the plan is for {plan.dataset}: nothing is set beside them"
    yield from _deviations(runs, plan)
    for kind, planned, made in (("pairs", plan.pairs, runs.pair), ("methods", plan.methods, runs.method)):
        absent = [name for name in planned if name not in set(made)]
        if absent:
            yield f"not run: {kind} {', '.join(absent)}"
    yield from plan.notes


def _deviations(runs: pd.DataFrame, plan: BenchmarkPlan) -> Iterator[str]:
    """Settings of the plan that the runs, or the runs of their source models, do not have."""
    planned = {f"config.{name}": value for name, value in {**plan.common, **plan.adapt}.items()}
    for start, settings in plan.source.items():
        planned |= {f"source.{name} of {start}": value for name, value in {**plan.common, **settings}.items()}
    settings = compared_settings(runs)
    is_of_source = settings.name.str.startswith("source.")
    names = settings.name.mask(is_of_source, settings.name + " of " + settings.start)
    for (name, value), _ in settings.groupby([names, "value"], sort=False):
        planned_value = setting_text(planned.get(name))
        if name in planned and value not in (planned_value, NOT_SET):
            yield f"deviates from the paper: {setting_name(name)}: {value}, in the paper's plan {planned_value}"


def _failures(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        for run, reason in record["failures"].items():
            yield f"failed: {run}: {reason}"
