"""The commands of the laboratory; each imports what it needs when it runs."""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tllib_ancon.cli.commands import Command
from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.config.types import Seed
from tllib_ancon.laboratory.benchmark import BenchmarkConfig, benchmark
from tllib_ancon.runs.files import write_json
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import say


class _ReportConfig(Settings):
    """Which runs stand in the report."""

    FLAG = Flag(group="options", common=True)

    folders: Annotated[tuple[str, ...], Flag(metavar="DIR", group="positional arguments")]
    """run directories, or folders that hold them"""
    out: Annotated[str, Flag(metavar="DIR")] = "report"
    """folder of report.html, report.md, runs.csv and *.png"""


def _report(config: _ReportConfig) -> None:
    require("report", "pandas", "jinja2", "matplotlib", extra="report")
    from tllib_ancon.laboratory.report import write_report

    print(write_report(config.folders, config.out))


class _DemoConfig(Settings):
    """Which runs the demo makes."""

    FLAG = Flag(group="options", common=True)

    out: Annotated[str, Flag(metavar="DIR")] = "ancon-demo"
    """folder of the data, the runs and the results"""
    seeds: tuple[Seed, ...] = (0,)
    """seeds, each with a source model of its own; five seeds show differences of a few points"""
    source_epochs: int = Field(10, ge=1)
    """passes over the images for each source model"""
    epochs: int = Field(12, ge=1)
    """passes over the images for each adaptation"""
    jobs: int | None = Field(None, ge=1)
    """runs at a time, of one thread each; by default one for each GPU, or without a GPU one for each core"""


def _demo(config: _DemoConfig) -> None:
    from tllib_ancon.laboratory.demo import make_demo, runs_of, summarize, table

    started = time.perf_counter()
    out = Path(config.out)
    runs = runs_of(out, config.seeds, config.source_epochs, config.epochs)
    make_demo(out, runs, config.jobs, partial(say, file=sys.stderr))
    summary = summarize(out, runs)
    print(table(summary))
    seconds = round(time.perf_counter() - started, 1)
    write_json(out / "summary.json", {**summary, "seconds": seconds})
    say(f"{seconds:.0f} s; numbers in {out / 'summary.json'}; figures: tllib-ancon report {out}")
    if len(config.seeds) < 5:
        print("so few seeds prove little; tllib-ancon demo --seeds 0 1 2 3 4 takes five")


COMMANDS = {
    "demo": Command(_DemoConfig, _demo),
    "benchmark": Command(BenchmarkConfig, benchmark, "%(prog)s TABLE ROOT [flags]", ("table", "root")),
    "report": Command(_ReportConfig, _report, "%(prog)s DIR [DIR ...] [flags]", ("folders",)),
}
