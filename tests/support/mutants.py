"""The share of a random sample of mutants that the tests kill: python tests/support/mutants.py DIR.

A mutant is the package with one function changed in one place, for example ``<`` to ``<=``. It is killed when a test
fails. mutmut makes and tests the mutants in a copy of the checkout below DIR. The same command resumes an interrupted
run.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from math import sqrt
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("self_training", "measures", "opening", "training", "runs")
KILLED = ("killed", "timeout", "segfault", "check was interrupted by user")
"""The last is mutmut's name of a failed collection: a test file could not even be read with the mutant."""


def copy_checkout(project):
    """The files of the checkout, with their times, by which mutmut knows what has changed."""
    for folder in ("tests", "mutants/tests", "tllib_ancon"):
        shutil.rmtree(project / folder, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, project / name)


def mutmut(project, *words, check=True):
    """What mutmut's command prints. All temporary files lie beside the copy, whatever a mutant writes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME"):
        place = project.parent / variable.lower()
        place.mkdir(exist_ok=True)
        environment[variable] = str(place)
    command = [sys.executable, "-m", "mutmut", *words]
    stderr = None if check else subprocess.DEVNULL
    done = subprocess.run(command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)
    if check and done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if " Running " not in line]
        sys.exit("\n".join([*lines[-20:], f"mutmut has failed; pytest in {project / 'mutants'} shows failing tests"]))
    return done.stdout


def statuses(project):
    lines = mutmut(project, "results", "--all", "true").splitlines()
    return dict(line.strip().rsplit(": ", 1) for line in lines)


def sample(names, seed, each):
    """So many mutants of each room, those of the smallest hashes: a larger sample holds a smaller one."""

    def rank(name):
        return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()

    return {room: sorted(names_of(names, room), key=rank)[:each] for room in ROOMS}


def names_of(names, room):
    return [name for name in names if name.startswith(f"tllib_ancon.{room}.")]


def score(counts):
    """Share of killed mutants of all rooms with its standard error.

    Args:
        counts: for each room its mutants, those in the sample, and those that are killed
    """
    total = sum(mutants for mutants, _, _ in counts)
    share = 0.0
    variance = 0.0
    for mutants, drawn, killed in counts:
        weight = mutants / total
        of_room = killed / drawn
        share += weight * of_room
        variance += weight**2 * of_room * (1 - of_room) / max(drawn - 1, 1) * (1 - drawn / mutants)
    return share, sqrt(variance)


def report(found, drawn):
    print("| room | mutants | in the sample | killed |\n|---|---:|---:|---:|")
    counts = []
    for room, names in drawn.items():
        killed = sum(found[name] in KILLED for name in names)
        counts.append((len(names_of(found, room)), len(names), killed))
        print(f"| `{room}` | {counts[-1][0]:,} | {len(names)} | {killed} |")
    share, error = score(counts)
    print(f"| all, weighted by mutants | | | {share:.1%} ± {error:.1%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="folder of the copy and of all results, made when missing")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample. Default: 1")
    parser.add_argument("--each", type=int, default=40, help="mutants of each room. Default: 40")
    parser.add_argument("--again", action="store_true", help="test the survivors again, after a change of tests")
    arguments = parser.parse_args()
    project = arguments.directory.resolve() / "project"
    copy_checkout(project)
    mutmut(project, "run", "makes the mutants, and ends because none has this name", check=False)
    found = statuses(project)
    drawn = sample(found, arguments.seed, arguments.each)
    names = [name for of_room in drawn.values() for name in of_room]
    untested = [name for name in names if found[name] == "not checked"]
    if arguments.again:
        untested = [name for name in names if found[name] not in KILLED]
    if untested:
        mutmut(project, "run", "--max-children", "1", *untested)
        found = statuses(project)
    survivors = [name for name in names if found[name] not in KILLED]
    file = arguments.directory / "survivors.txt"
    file.write_text("\n".join(mutmut(project, "show", name) for name in survivors))
    report(found, drawn)
    print(f"What survived: {file}")


if __name__ == "__main__":
    main()
