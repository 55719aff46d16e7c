"""The share of a random sample of mutants that the tests kill: python tests/support/mutants.py DIR.

mutmut changes a function of the rooms below in one place, for example ``<`` to ``<=``. A mutant is killed when a test
fails. Everything happens in a copy of the checkout below DIR. The same command resumes an interrupted run. Run it as a
file: imported as a module it would bring the tests of the checkout along.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, zip_longest
from math import sqrt
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("self_training", "measures", "opening", "training", "runs")
PLAIN_DECORATORS = ("validated", "torch.no_grad()")
"""mutmut leaves decorated functions out. Below these decorators a function can be exchanged like any other."""
KILLED = ("killed", "timeout", "segfault", "check was interrupted by user")
"""The last is mutmut's name of a failed collection: a test file could not even be read with the mutant."""


@dataclass(frozen=True)
class Mutant:
    name: str
    room: str
    status: str

    @property
    def is_killed(self) -> bool:
        return self.status in KILLED


def copy_checkout(directory: Path) -> Path:
    """The files of the checkout below the directory, with their times, by which mutmut knows what has changed."""
    project = directory / "project"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    shutil.rmtree(project / "tests", ignore_errors=True)
    shutil.rmtree(project / "mutants" / "tests", ignore_errors=True)
    for name in listed.stdout.splitlines():
        copied = project / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, copied)
    return project


def stay_below(directory: Path):
    """Let the home directory and every temporary or cached file lie below the directory, whatever a mutant writes."""
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME"):
        place = directory / variable.lower()
        place.mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(place)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONPATH", None)
    sys.path.remove(str(Path(__file__).parent))


def mutate_below_plain_decorators():
    import libcst
    from mutmut.mutation.file_mutation import MutationVisitor

    skips = MutationVisitor._skip_node_and_children

    def skips_without_plain_decorators(visitor, node: libcst.CSTNode) -> bool:
        if isinstance(node, libcst.FunctionDef):
            names = [libcst.Module([]).code_for_node(decorator.decorator) for decorator in node.decorators]
            if set(names) <= set(PLAIN_DECORATORS):
                return skips(visitor, node.with_changes(decorators=[]))
        return skips(visitor, node)

    MutationVisitor._skip_node_and_children = skips_without_plain_decorators


def run(names: list[str]):
    """Test these mutants in this order, each by its cheapest test first."""
    from mutmut import __main__ as mutmut
    from mutmut.state import state
    from mutmut.workers.isolation import ForkServerRunner

    submit = ForkServerRunner.submit

    def submit_in_order(runner: ForkServerRunner, mutant_name: str, tests: list[str], *limits):
        submit(runner, mutant_name, sorted(tests, key=state().duration_by_test.__getitem__), *limits)

    ForkServerRunner.submit = submit_in_order
    mutmut.estimated_worst_case_time = names.index  # by which mutmut sorts
    mutmut._run(names, 1)


def all_mutants() -> list[Mutant]:
    from mutmut import __main__ as mutmut
    from mutmut.stats import status_by_exit_code

    with_files, _ = mutmut.collect_source_file_mutation_data(mutant_names=())
    mutants = []
    for file, name, exit_code in with_files:
        if ".hugging_face." in name and find_spec("datasets") is None:
            continue  # its tests are skipped
        path = str(file.path)
        room = next(room for room in ROOMS if path.startswith(f"tllib_ancon/{room}"))
        mutants.append(Mutant(name, room, status_by_exit_code[exit_code]))
    return mutants


def generate():
    from mutmut import __main__ as mutmut

    os.makedirs("mutants", exist_ok=True)
    mutmut.copy_src_dir()
    mutmut.create_mutants(1)


def sample(mutants: Iterable[Mutant], seed: int, each: int) -> list[Mutant]:
    """As many mutants of each room, rooms by turns: those of the smallest hashes. A larger sample holds a smaller."""

    def rank(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).hexdigest()

    of_rooms = []
    for room in ROOMS:
        of_room = [mutant for mutant in mutants if mutant.room == room]
        of_rooms.append(sorted(of_room, key=rank)[:each])
    in_turns = chain.from_iterable(zip_longest(*of_rooms))
    return [mutant for mutant in in_turns if mutant is not None]


def score(counts: Iterable[tuple[int, int, int]]) -> tuple[float, float]:
    """Share of killed mutants of all rooms with its standard error.

    Args:
        counts: for each room its mutants, those in the sample, and those that are killed
    """
    rows = list(counts)
    total = sum(mutants for mutants, _, _ in rows)
    share = 0.0
    variance = 0.0
    for mutants, drawn, killed in rows:
        weight = mutants / total
        of_room = killed / drawn
        share += weight * of_room
        finite = 1 - drawn / mutants
        variance += weight**2 * of_room * (1 - of_room) / max(drawn - 1, 1) * finite
    return share, sqrt(variance)


def report(mutants: list[Mutant], drawn: list[Mutant]) -> str:
    lines = ["| room | mutants | in the sample | killed | share |", "|---|---:|---:|---:|---:|"]
    counts = []
    for room in ROOMS:
        of_room = [mutant for mutant in drawn if mutant.room == room]
        number = sum(mutant.room == room for mutant in mutants)
        killed = sum(mutant.is_killed for mutant in of_room)
        counts.append((number, len(of_room), killed))
        lines.append(f"| `{room}` | {number:,} | {len(of_room)} | {killed} | {killed / len(of_room):.1%} |")
    share, error = score(counts)
    killed = sum(mutant.is_killed for mutant in drawn)
    row = f"| all, weighted by mutants | {len(mutants):,} | {len(drawn)} | {killed} | {share:.1%} ± {error:.1%} |"
    lines.append(row)
    return "\n".join(lines)


def survivors(drawn: list[Mutant]) -> str:
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    lines = []
    for mutant in drawn:
        if not mutant.is_killed:
            lines += [f"# {mutant.name}: {mutant.status}", get_diff_for_mutant(mutant.name), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="folder of the copy and of all results, made when missing")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample. Default: 1")
    parser.add_argument("--each", type=int, default=40, help="mutants of each room. Default: 40")
    parser.add_argument("--again", choices=("survivors", "all"), help="which to test again, after a change of tests")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    project = copy_checkout(directory)
    stay_below(directory)
    os.chdir(project)
    mutate_below_plain_decorators()
    generate()
    drawn = sample(all_mutants(), arguments.seed, arguments.each)
    untested = [mutant.name for mutant in drawn if mutant.status == "not checked"]
    if arguments.again is not None:
        Path("mutants/mutmut-stats.json").unlink(missing_ok=True)
        untested = [mutant.name for mutant in drawn if arguments.again == "all" or not mutant.is_killed]
    if untested:
        run(untested)
    mutants = all_mutants()
    drawn = sample(mutants, arguments.seed, arguments.each)
    (directory / "survivors.txt").write_text(survivors(drawn))
    print(report(mutants, drawn))
    print(f"What survived: {directory / 'survivors.txt'}")


if __name__ == "__main__":
    main()
