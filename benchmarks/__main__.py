"""Run a study, write its page, or write the claims.

    python -m benchmarks run STUDY --data DATA --out OUT [--jobs N]
    python -m benchmarks page [STUDY ...] [--rows OUT] [--check]
    python -m benchmarks claims [--check]

``run`` writes OUT/STUDY.csv, a row for each run and number of views, and OUT/STUDY.toml, which holds what is the same
for all rows. The same command resumes a study. ``page`` writes the tables between ``<!-- rows: STUDY TABLE -->`` and
``<!-- end -->`` from ``benchmarks/results``, where ``--rows`` first copies the rows of a study to. ``claims`` writes
``docs/claims.md``. ``--check`` writes nothing, and fails if a page differs from its rows.
"""

import csv
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import pandas as pd

from benchmarks import pages, parser, run, tomllib
from benchmarks.families import Laboratory
from benchmarks.study import COLUMNS, RESULTS, Study, keys_of, provenance, rows_of
from tllib_ancon.runtime.errors import UserError

JUDGED = Path(__file__).parent / "judged.csv"


def main(words=None):
    arguments = parser("benchmarks", __doc__)
    commands = arguments.add_subparsers(required=True)
    running = commands.add_parser("run", help="run a study")
    running.set_defaults(command=run_study)
    running.add_argument("study", metavar="STUDY")
    running.add_argument("--data", type=Path, required=True, help="folder that benchmarks.data fills")
    running.add_argument("--out", type=Path, required=True, help="folder of the rows and the source models")
    running.add_argument("--reason", help="of a study on judge data, for the record of judged.csv")
    running.add_argument("--jobs", type=int, default=1, help="processes of one thread each (default: 1)")
    paging = commands.add_parser("page", help="write tables from rows")
    paging.set_defaults(command=write_pages)
    paging.add_argument("studies", nargs="*", metavar="STUDY", help="default: all studies")
    paging.add_argument("--rows", type=Path, metavar="OUT", help="copy the rows of the studies from here first")
    paging.add_argument("--check", action="store_true", help="write nothing; fail if a page differs from its rows")
    claiming = commands.add_parser("claims", help="write docs/claims.md")
    claiming.set_defaults(command=write_claims)
    claiming.add_argument("--check", action="store_true", help="write nothing; fail if the page differs from the rows")
    args = arguments.parse_args(words)
    args.command(args)


def run_study(args):
    """Make the runs whose rows do not exist yet."""
    study = Study.load(args.study)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{study.name}.csv"
    is_new = not file.exists()
    header = write_header(study, file)
    if is_new and study.content.get("judge", False):
        record_judgement(header, args.reason)
    laboratory = Laboratory(args.data, args.out, study.images)
    done = keys_of(file)
    runs = [planned for planned in study.runs() if planned.key not in done]
    print(f"{study.name}: {len(runs)} runs, {len(done)} done before", flush=True)
    for rows in finished(laboratory, runs, args.jobs):
        table = pd.DataFrame(rows, columns=COLUMNS)
        table.to_csv(file, mode="a", header=not file.exists(), index=False)


def finished(laboratory, runs, jobs):
    """Rows of each run, in the order in which the runs end."""
    if jobs == 1:
        for planned in runs:
            yield rows_of(laboratory, planned)
        return
    for cell in sorted({planned.cell._replace(target="", kind="") for planned in runs}):
        laboratory.source_model(cell)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(rows_of, laboratory, planned) for planned in runs]):
            yield future.result()


def record_judgement(header, reason):
    """Judge data count once: every use has a row, whatever comes out."""
    if not reason:
        raise UserError("this study uses judge data, and each use is recorded. Add --reason with one sentence")
    with JUDGED.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow([header["date"], header["commit"], header["study"], reason, ""])


def write_header(study, file):
    """Of new rows. Rows of another version of the package cannot be added to a file."""
    header = file.with_suffix(".toml")
    now = provenance(study)
    if not file.exists():
        header.write_text("".join(f'{name} = "{value}"\n' for name, value in now.items()), encoding="utf-8")
        return now
    before = tomllib.loads(header.read_text(encoding="utf-8"))
    different = [name for name in now if name != "date" and now[name] != before[name]]
    if different:
        name = different[0]
        raise UserError(f"{file} has rows of {name} {before[name]}, not {now[name]}. Choose another folder with --out")
    return before


def write_pages(args):
    if args.rows:
        for name in args.studies:
            for suffix in (".csv", ".toml"):
                shutil.copy(args.rows / f"{name}{suffix}", RESULTS)
    pages.write(args.check)


def write_claims(args):
    pages.write_claims(args.check)


if __name__ == "__main__":
    run(main)
