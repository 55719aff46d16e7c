"""A report of finished runs: tables beside the paper's numbers, figures, one HTML page."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, select_autoescape

from tllib_ancon.laboratory.benchmark import RECORD
from tllib_ancon.laboratory.figures import figures
from tllib_ancon.laboratory.finished_runs import NOT_SET, ROW, label, read_runs, setting_text, settings_of_runs
from tllib_ancon.laboratory.plan import BenchmarkPlan, load
from tllib_ancon.laboratory.published import published
from tllib_ancon.laboratory.tables import ACCURACY, CLASS_ACCURACY, ECE, Quantity, Table, paired_table, selection_table
from tllib_ancon.laboratory.tables import table as table_of
from tllib_ancon.runs.files import read_json, write_bytes
from tllib_ancon.runtime import text
from tllib_ancon.runtime.types import Options, Record


def write_report(folders: Sequence[str | Path], out: str | Path = "report") -> str:
    """Write tables, figures and the page of the finished runs in these folders, beside the table of their benchmark."""
    paths = list(map(Path, folders))
    records = [read_json(path / RECORD) for path in paths if (path / RECORD).is_file()]
    plan = _plan(records)
    runs, left_out = read_runs(paths)
    pictures, unreadable = figures(runs)
    content = {
        "title": plan.title if plan else f"{runs.dataset[0]}: {text.counted(len(runs), 'adaptation')}",
        "remarks": [*_remarks(runs), *_remarks_on_plan(runs, plan), *_failures(records), *left_out, *unreadable],
        "tables": [table for table in _tables(runs, plan) if table is not None],
        "pictures": pictures,
    }
    markdown = _rendered("report.md", content)
    files = {f"{picture.name}.png": picture.png for picture in pictures}
    files |= {"report.md": markdown.encode(), "report.html": _rendered("page.html", content).encode()}
    files["runs.csv"] = _runs_csv(runs).encode()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes(folder / name, data)
    page = text.terminal(folder / "report.html")
    return f"{markdown}\ntables and figures in {page}"


def _rendered(template: str, content: Options) -> str:
    """The text of one of the templates: ``report.md`` or ``page.html``, which loads nothing."""
    environment = Environment(
        loader=PackageLoader("tllib_ancon", "laboratory/templates"),
        finalize=text.html,
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"md": text.markdown, "base64": lambda png: b64encode(png).decode()}
    return environment.get_template(template).render(content)


def _plan(records: Sequence[Record]) -> BenchmarkPlan | None:
    """The plan of the only table that benchmarks recorded."""
    tables = {record["table"] for record in records}
    if len(tables) != 1:
        return None
    return load(tables.pop())


def _tables(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[Table | None]:
    if plan and CLASS_ACCURACY.name in plan.published:
        yield _beside_paper(CLASS_ACCURACY, runs, plan)
    for severity, part in runs.groupby("severity"):
        for quantity in (ACCURACY, ECE):
            table = _beside_paper(quantity, part, plan)
            if severity:
                table = replace(table, title=f"{table.title}, severity {severity}")
            yield table
    yield paired_table(runs)
    if plan and "selection" in (plan.table, plan.extends):
        yield selection_table(runs)


def _beside_paper(quantity: Quantity, runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Table:
    if plan is None or quantity.name not in plan.published or runs.dataset.iloc[0] != plan.dataset:
        return table_of(quantity, runs)
    name = plan.published[quantity.name].format(severity=runs.severity.iloc[0])
    return table_of(quantity, runs, published(name))


def _remarks(runs: pd.DataFrame) -> Iterator[str]:
    seeds = ", ".join(map(str, sorted(runs.seed.unique())))
    machines = "; ".join(sorted(runs.machine.unique()))
    yield f"{text.counted(len(runs), 'adaptation')}, seeds {seeds}; {machines}"
    settings = settings_of_runs(runs).replace(NOT_SET, None)
    for name in settings:
        methods_of_value = runs.method.groupby(settings[name]).unique().map(", ".join)
        if len(methods_of_value) > 1:
            values = [f"{value} of {methods}" for value, methods in methods_of_value.items()]
            yield f"{name}: {'; '.join(values)}"


def _remarks_on_plan(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[str]:
    if plan is None:
        return
    dataset = runs.dataset[0]
    if dataset != plan.dataset:
        yield f"these runs are on {dataset}, the plan is for {plan.dataset}: nothing is set beside them"
    for start, settings in settings_of_runs(runs).groupby(runs.start):
        of_source = {**plan.common, **plan.source.get(start, {})}
        planned = {**plan.common, **plan.adapt, **{f"source {name}": value for name, value in of_source.items()}}
        for name in settings.columns.intersection(planned.keys() - plan.varied):
            planned_value = setting_text(planned[name])
            deviating = {*settings[name]} - {planned_value, NOT_SET}
            if deviating:
                values = ", ".join(sorted(deviating))
                yield f"deviates from the paper: {label(start, name)}: {values}, in the paper's plan {planned_value}"
    for kind, planned_names, made in (("pairs", plan.pairs, runs.pair), ("methods", plan.methods, runs.method)):
        absent = [name for name in planned_names if name not in set(made)]
        if absent:
            yield f"not run: {kind} {', '.join(absent)}"
    yield from plan.notes


def _failures(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        for run, reason in record["failures"].items():
            yield f"failed: {run}: {reason}"


def _runs_csv(runs: pd.DataFrame) -> str:
    """One line for each run: scores of the source and the selected model, and the selected epoch."""
    columns = ["pair", *ROW, "seed", "epoch", "start_accuracy", "start_ece", "accuracy", "ece"]
    return text.csv_text([columns, *runs.astype({"epoch": int})[columns].round(4).to_numpy(object)])
