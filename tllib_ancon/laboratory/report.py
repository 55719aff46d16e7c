"""A report of finished runs: tables beside the paper's numbers, figures, one HTML page."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, select_autoescape

from tllib_ancon.laboratory.benchmark import RECORD
from tllib_ancon.laboratory.figures import figures
from tllib_ancon.laboratory.finished_runs import NOT_SET, ROW, label, read_runs
from tllib_ancon.laboratory.plan import BenchmarkPlan, load
from tllib_ancon.laboratory.published import published
from tllib_ancon.laboratory.tables import TITLES, table
from tllib_ancon.runs.files import read_json, write_bytes
from tllib_ancon.runtime import text
from tllib_ancon.runtime.types import Options


def write_report(folders: Sequence[str | Path], out: str | Path = "report") -> str:
    """Write tables, figures and the page of the finished runs in these folders, beside the table of their benchmark."""
    paths = list(map(Path, folders))
    runs, left_out = read_runs(paths)
    plan = _plan(paths, runs)
    pictures = figures(runs)
    content = {
        "title": plan.title if plan else f"{runs.dataset[0]}: {text.counted(len(runs), 'adaptation')}",
        "remarks": [*_remarks(runs, plan), *left_out],
        "tables": _tables(runs, plan),
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
    page = text.showable(str(folder / "report.html"))
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


def _plan(folders: Sequence[Path], runs: pd.DataFrame) -> BenchmarkPlan | None:
    """The plan of the only table that benchmarks recorded in these folders, if it is for the dataset of the runs."""
    names = {read_json(folder / RECORD)["table"] for folder in folders if (folder / RECORD).is_file()}
    if len(names) != 1:
        return None
    plan = load(names.pop())
    if plan.dataset != runs.dataset[0]:
        return None
    return plan


def _tables(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> dict[str, pd.DataFrame]:
    """Of each score, beside what the paper prints, by title; corruptions have a table for each severity."""
    tables_of_scores = plan.published if plan else {}
    tables = {}
    for severity, part in runs.groupby("severity"):
        for score, title in TITLES.items():
            printed = None
            if score in tables_of_scores:
                printed = published(tables_of_scores[score].format(severity=severity))
            elif score not in ("accuracy", "ece"):
                continue
            with_severity = f"{title}, severity {severity}" if severity else title
            tables[with_severity] = table(score, part, printed)
    return tables


def _remarks(runs: pd.DataFrame, plan: BenchmarkPlan | None) -> Iterator[str]:
    seeds = ", ".join(map(str, sorted(runs.seed.unique())))
    machines = "; ".join(sorted(runs.machine.unique()))
    yield f"{text.counted(len(runs), 'adaptation')}, seeds {seeds}; {machines}"
    rows = [(label(run.start, run.method), run.settings) for run in runs.itertuples()]
    if plan is not None:
        yield from plan.notes
        rows += [("the paper's plan", _planned(plan, start)) for start in runs.start.unique()]
    for setting in sorted(set().union(*runs.settings)):
        names_of_value = defaultdict(set)
        for name, settings in rows:
            names_of_value[settings.get(setting, NOT_SET)].add(name)
        names_of_value.pop(NOT_SET, None)
        if len(names_of_value) > 1:
            values = [f"{value} of {', '.join(sorted(names))}" for value, names in sorted(names_of_value.items())]
            yield f"{setting}: {'; '.join(values)}"


def _planned(plan: BenchmarkPlan, start: str) -> dict[str, str]:
    """The settings of a plan for the runs of a start, as texts; without those that it varies."""
    of_source = {**plan.common, **plan.source.get(start, {})}
    settings = {**plan.common, **plan.adapt, **{f"source {name}": value for name, value in of_source.items()}}
    return {name: str(value) for name, value in settings.items() if name not in set().union(*plan.variants)}


def _runs_csv(runs: pd.DataFrame) -> str:
    """One line for each run: scores of the source and the selected model, and the selected epoch."""
    columns = ["pair", *ROW, "seed", "epoch", "start_accuracy", "start_ece", "accuracy", "ece"]
    return text.csv_text([columns, *runs.astype({"epoch": int})[columns].round(4).to_numpy(object)])
