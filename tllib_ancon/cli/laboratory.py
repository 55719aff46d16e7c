"""The commands of the laboratory; each imports what it needs when it runs."""

from typing import Annotated

from tllib_ancon.cli.commands import Command
from tllib_ancon.config.settings import Flag, Settings
from tllib_ancon.laboratory.benchmark import BenchmarkConfig, benchmark
from tllib_ancon.laboratory.demo import DemoConfig, demo
from tllib_ancon.runtime.extras import require


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


COMMANDS = {
    "demo": Command(DemoConfig, demo),
    "benchmark": Command(BenchmarkConfig, benchmark, "%(prog)s TABLE ROOT [flags]", ("table", "root")),
    "report": Command(_ReportConfig, _report, "%(prog)s DIR [DIR ...] [flags]", ("folders",)),
}
