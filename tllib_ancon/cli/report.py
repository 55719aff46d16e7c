"""``tllib-ancon report``: tables, figures and one HTML page of finished runs."""

from __future__ import annotations

import argparse

from tllib_ancon.cli.parser import Parser
from tllib_ancon.given_paths import folder_of_runs
from tllib_ancon.paper import plan as plans


def add_arguments(parser: Parser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, or folders that hold them (needed)")
    parser.add_argument(
        "--paper",
        metavar="TABLE",
        help=f"table of the paper to set beside: {', '.join(plans.tables())} (default: that of the runs' benchmark)",
    )
    parser.add_argument(
        "--out",
        default="report",
        metavar="DIR",
        help="folder of report.html, report.md, *.csv, *.tex and *.png (default: report)",
    )
    parser.usage = "%(prog)s DIR [DIR ...] [flags]"


def run(args: argparse.Namespace) -> int:
    for folder in args.folders:
        folder_of_runs(folder)

    from tllib_ancon.report.report import write_report

    print(write_report(args.folders, args.paper, args.out))
    return 0
