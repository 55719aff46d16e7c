"""A report of finished runs: tables beside the paper's numbers, figures, one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tllib_ancon.config import ASSUMED
from tllib_ancon.data.corrupted import IMAGENET_C
from tllib_ancon.errors import UserError
from tllib_ancon.paper import numbers
from tllib_ancon.paper import plan as plans
from tllib_ancon.paper.driver import RECORD
from tllib_ancon.paper.plan import Plan
from tllib_ancon.report.canvas import Picture
from tllib_ancon.report.figures import figures
from tllib_ancon.report.formats import markdown, to_csv, to_latex
from tllib_ancon.report.page import page
from tllib_ancon.report.paired import paired_table
from tllib_ancon.report.run_list import runs_csv
from tllib_ancon.report.runs import (
    AdaptedRun,
    defaults_of_method,
    deviations,
    read_records,
    read_runs,
    refuse_mixed_settings,
)
from tllib_ancon.report.tables import (
    WITH_LABELS,
    WITHOUT_LABELS,
    Comparison,
    Quantity,
    Table,
    by_class,
    mce_table,
    selection_table,
    table,
)
from tllib_ancon.training.files import write_bytes


def write_report(folders: Sequence[str | Path], paper: str | None = None, out: str | Path = "report") -> str:
    """Write the tables, the figures and the page of finished runs.

    Args:
        folders: run directories, or folders that hold them
        paper: table of the paper to set beside; by default that of the benchmark that made the runs
        out: folder to write to

    Returns:
        The text of ``report.md`` and where the report is.

    Raises:
        UserError: there is no finished run, the runs do not belong in one table, or the folder cannot be written
    """
    paths, out = [Path(folder) for folder in folders], Path(out)
    records, damaged = read_records(folder / RECORD for folder in paths)
    plan = _plan(paper, records)
    varied = sorted(plan.varied) if plan else []
    runs, left_out = read_runs(paths)
    refuse_mixed_settings(runs, varied)
    title = plan.title if plan else f"{runs[0].dataset}: {_counted(len(runs), 'adaptation')}"
    tables = _tables(runs, plan, varied)
    pictures, not_shown = figures(runs, varied)
    remarks = [*_remarks(runs, plan, records), *damaged, *left_out, *not_shown]
    text = _write(out, title, remarks, tables, pictures, runs_csv(runs, varied))
    return f"{text}\n{_counted(len(tables), 'table')} and {_counted(len(pictures), 'figure')} in {out / 'report.html'}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _plan(paper: str | None, records: Sequence[dict[str, Any]]) -> Plan | None:
    names = {record["table"] for record in records}
    table = paper or (names.pop() if len(names) == 1 else None)
    return plans.load(table) if table else None


def _tables(runs: Sequence[AdaptedRun], plan: Plan | None, varied: Sequence[str]) -> list[Table]:
    labelled = [run for run in runs if run.labelled]
    made = _by_severity(labelled, plan, varied)
    if labelled and plan and "class_accuracy" in plan.published:
        compared = _comparison(plan, "class_accuracy", 0, labelled)
        names = list(compared.published[0].values) if compared.published else []
        quantity = Quantity("class_accuracy", "accuracy by class in %", by_class(names))
        made.insert(0, table(quantity, labelled, varied, compared))
    pairs = paired_table([run for run in labelled if run.severity is None], varied)
    further = (pairs, None if varied else selection_table(labelled), _mce(labelled))
    made += [found for found in further if found is not None]
    unlabelled = [run for run in runs if not run.labelled]
    without = [table(quantity, unlabelled, varied) for quantity in WITHOUT_LABELS] if unlabelled else []
    return [*made, *(found for found in without if found.lines)]


def _by_severity(runs: Sequence[AdaptedRun], plan: Plan | None, varied: Sequence[str]) -> list[Table]:
    made = []
    for severity in sorted({run.severity or 0 for run in runs}):
        part = [run for run in runs if (run.severity or 0) == severity]
        for quantity in WITH_LABELS:
            compared = _comparison(plan, quantity.name, severity, part)
            made.append(_with_severity(table(quantity, part, varied, compared), severity))
    return made


def _mce(runs: Sequence[AdaptedRun]) -> Table | None:
    return mce_table(runs) if runs and runs[0].dataset == IMAGENET_C else None


def _with_severity(made: Table, severity: int) -> Table:
    if not severity:
        return made
    return replace(made, name=f"{made.name}-{severity}", title=f"{made.title}, severity {severity}")


def _comparison(plan: Plan | None, quantity: str, severity: int, runs: Sequence[AdaptedRun]) -> Comparison:
    """What was printed for these runs; nothing if they are on another dataset."""
    if plan is None or quantity not in plan.published or runs[0].dataset != plan.dataset:
        return Comparison()
    name = plan.published[quantity].format(severity=severity)
    published = numbers.published(name) if name in numbers.tables() else []
    return Comparison(published, numbers.other(name))


def _remarks(runs: Sequence[AdaptedRun], plan: Plan | None, records: Sequence[dict[str, Any]]) -> list[str]:
    """How the runs were made."""
    made = sorted({_machine(run.config["versions"]) for run in runs})
    seeds = sorted({run.seed for run in runs})
    numbered = f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"
    remarks = [f"{_counted(len(runs), 'adaptation')}, {numbered}; {'; '.join(made)}"]
    listed = {
        run.method: ", ".join(f"{name} {value}" for name, value in defaults_of_method(run).items()) for run in runs
    }
    remarks += [f"{method} by its own default: {settings}" for method, settings in listed.items() if settings]
    unlabelled = sum(not run.labelled for run in runs)
    if unlabelled:
        without = f"{_counted(unlabelled, 'adaptation')} without labels"
        remarks.append(f"{without}: InfoMax, votes and δ are shown in place of accuracy and ECE")
    if plan is not None:
        data = runs[0].dataset
        if data != plan.dataset:
            remarks.append(f"these runs are on {data}, the plan is for {plan.dataset}: nothing is set beside them")
        remarks += [f"deviates from the paper: {text}" for text in deviations(runs, _planned(plan), plan.varied)]
        remarks += _not_run(runs, plan)
        remarks += plan.notes
    remarks += [f"failed: {one.get('run')}: {one.get('reason')}" for record in records for one in record["failures"]]
    return remarks


def _machine(versions: dict[str, Any]) -> str:
    return f"torch {versions.get('torch', 'of an unknown version')} on {versions.get('device', 'an unknown device')}"


def _planned(plan: Plan) -> dict[str, dict[str, Any]]:
    """Start -> the settings of the plan, those of the source stage under ``source NAME``."""
    planned: dict[str, dict[str, Any]] = {}
    runs = {run.name: run for run in plan.runs("ROOT", Path("OUT"))}
    for run in runs.values():
        start = run.name.split("/")[0]
        if run.command == "adapt" and start not in planned:
            source = runs[run.needs].config.to_dict() if run.needs else {}
            own = _filled(run.config.inherit(source, str(run.needs)).to_dict())
            planned[start] = own | {f"source {name}": value for name, value in _filled(source).items()}
    return planned


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With what stands for those that are left open."""
    return {name: ASSUMED.get(name) if value is None else value for name, value in settings.items()}


def _not_run(runs: Sequence[AdaptedRun], plan: Plan) -> list[str]:
    pairs = {run.column if run.severity is None else run.target for run in runs}
    missing = {
        "pairs": [pair for pair in plan.pairs if pair not in pairs],
        "methods": [method for method in plan.methods if method not in {run.method for run in runs}],
    }
    return [f"not run: {what} {', '.join(names)}" for what, names in missing.items() if names]


def _write(
    out: Path,
    title: str,
    remarks: Sequence[str],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    list_of_runs: str,
) -> str:
    """Write every file of the report whole; returns the text of ``report.md``.

    Raises:
        UserError: the folder or a file could not be written (which, why)
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {out} of the report cannot be made ({error.strerror}); choose another") from error
    texts = {
        "report.md": markdown(title, remarks, tables),
        "runs.csv": list_of_runs,
        **{f"{made.name}.csv": to_csv(made) for made in tables},
        **{f"{made.name}.tex": to_latex(made) for made in tables},
        "report.html": page(title, remarks, tables, pictures),
    }
    files = {name: text.encode(errors="replace") for name, text in texts.items()}  # not every file name is text
    files |= {f"{picture.name}.png": picture.png for picture in pictures}
    for name, content in files.items():
        write_bytes(out / name, content)
    return files["report.md"].decode()
