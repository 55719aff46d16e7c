"""``tllib-ancon report``: tables, figures and one HTML page of finished runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tllib_ancon.cli.benchmark import RECORD
from tllib_ancon.paper import plan as plans
from tllib_ancon.paper.plan import Plan
from tllib_ancon.report.runs import AdaptedRun
from tllib_ancon.report.tables import Comparison, Quantity, Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, or folders that hold them")
    parser.add_argument(
        "--paper", metavar="TABLE", help=f"set beside: {', '.join(plans.tables())}; known for benchmark's runs"
    )
    parser.add_argument(
        "--out", default="report", metavar="DIR", help="folder of report.html, report.md, *.csv, *.tex, *.png"
    )


def run(args: argparse.Namespace) -> int:
    from tllib_ancon.report.figures import figures
    from tllib_ancon.report.page import page
    from tllib_ancon.report.runs import read_runs, refuse_mixed_settings

    folders = [Path(folder) for folder in args.folders]
    records = [json.loads(path.read_text()) for folder in folders if (path := folder / RECORD).is_file()]
    plan = _plan(args, records)
    varied = sorted(plan.varied) if plan else []
    runs = read_runs(folders)
    refuse_mixed_settings(runs, varied)
    title = plan.title if plan else f"{runs[0].config['data']}: {len(runs)} adaptations"
    remarks = _remarks(runs, plan, records)
    tables = _tables(runs, plan, varied)
    pictures = figures(runs, varied)
    out = Path(args.out)
    _write(out, title, remarks, tables)
    for picture in pictures:
        (out / f"{picture.name}.png").write_bytes(picture.png)
    (out / "report.html").write_text(page(title, remarks, tables, pictures), encoding="utf-8")
    print((out / "report.md").read_text(encoding="utf-8"))
    print(f"{len(tables)} tables and {len(pictures)} figures in {out / 'report.html'}")
    return 0


def _plan(args: argparse.Namespace, records: Sequence[dict[str, Any]]) -> Plan | None:
    names = {record["table"] for record in records}
    table = args.paper or (names.pop() if len(names) == 1 else None)
    return plans.load(table) if table else None


def _tables(runs: Sequence[AdaptedRun], plan: Plan | None, varied: Sequence[str]) -> list[Table]:
    from tllib_ancon.report.tables import ACCURACY, ECE, by_class, mce_table, selection_table, table

    made = []
    for severity in sorted({run.severity or 0 for run in runs}):
        part = [run for run in runs if (run.severity or 0) == severity]
        for quantity in (ACCURACY, ECE):
            compared = _comparison(plan, quantity.name, severity, part)
            made.append(_with_severity(table(quantity, part, varied, compared), severity))
    if plan and "class_accuracy" in plan.published:
        compared = _comparison(plan, "class_accuracy", 0, runs)
        names = list(compared.published[0].values) if compared.published else []
        quantity = Quantity("class_accuracy", "accuracy by class in %", by_class(names))
        made.insert(0, table(quantity, runs, varied, compared))
    further = (None if varied else selection_table(runs), _mce(runs, mce_table))
    return [*made, *(found for found in further if found is not None)]


def _mce(runs: Sequence[AdaptedRun], mce_table: Any) -> Table | None:
    from tllib_ancon.data.corrupted import IMAGENET_C

    return mce_table(runs) if runs[0].config["data"] == IMAGENET_C else None


def _with_severity(made: Table, severity: int) -> Table:
    if not severity:
        return made
    return replace(made, name=f"{made.name}-{severity}", title=f"{made.title}, severity {severity}")


def _comparison(plan: Plan | None, quantity: str, severity: int, runs: Sequence[AdaptedRun]) -> Comparison:
    """What was printed for these runs; nothing if they are on another dataset."""
    from tllib_ancon.paper import numbers

    if plan is None or quantity not in plan.published or runs[0].config["data"] != plan.dataset:
        return Comparison()
    name = plan.published[quantity].format(severity=severity)
    published = numbers.published(name) if name in numbers.tables() else []
    return Comparison(published, numbers.other(name))


def _remarks(runs: Sequence[AdaptedRun], plan: Plan | None, records: Sequence[dict[str, Any]]) -> list[str]:
    """How the runs were made."""
    from tllib_ancon.report.runs import deviations

    made = sorted({f"torch {run.config['versions']['torch']} on {run.config['versions']['device']}" for run in runs})
    seeds = sorted({run.seed for run in runs})
    remarks = [f"{len(runs)} adaptations, seeds {', '.join(map(str, seeds))}; {'; '.join(made)}"]
    if plan is not None:
        data = runs[0].config["data"]
        if data != plan.dataset:
            remarks.append(f"these runs are on {data}, the plan is for {plan.dataset}: nothing is set beside them")
        remarks += [f"deviates from the paper: {text}" for text in deviations(runs, _planned(plan), plan.varied)]
        remarks += _not_run(runs, plan)
        remarks += plan.notes
    remarks += [f"failed: {one['run']}: {one['reason']}" for record in records for one in record["failures"]]
    return remarks


def _planned(plan: Plan) -> dict[str, dict[str, Any]]:
    """Start -> the settings of the plan, those of the source stage under ``source NAME``."""
    planned: dict[str, dict[str, Any]] = {}
    runs = {run.name: run for run in plan.runs("ROOT", Path("OUT"))}
    for run in runs.values():
        start = run.name.split("/")[0]
        if run.command == "adapt" and start not in planned:
            source = runs[run.needs].config.to_dict() if run.needs else {}
            planned[start] = {
                **run.config.to_dict(),
                **{f"source {k}": v for k, v in source.items()},
            }
    return planned


def _not_run(runs: Sequence[AdaptedRun], plan: Plan) -> list[str]:
    pairs = {run.column if run.severity is None else run.target for run in runs}
    missing = {
        "pairs": [pair for pair in plan.pairs if pair not in pairs],
        "methods": [method for method in plan.methods if method not in {run.method for run in runs}],
    }
    return [f"not run: {what} {', '.join(names)}" for what, names in missing.items() if names]


def _write(out: Path, title: str, remarks: Sequence[str], tables: Sequence[Table]) -> None:
    from tllib_ancon.report.formats import to_csv, to_latex, to_markdown

    out.mkdir(parents=True, exist_ok=True)
    listed = "".join(f"- {remark}\n" for remark in remarks)
    text = f"## {title}\n\n{listed}\n" + "\n".join(map(to_markdown, tables))
    (out / "report.md").write_text(text, encoding="utf-8")
    for made in tables:
        (out / f"{made.name}.csv").write_text(to_csv(made), encoding="utf-8")
        (out / f"{made.name}.tex").write_text(to_latex(made), encoding="utf-8")
