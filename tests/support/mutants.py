"""The share of a random sample of mutants that the tests kill: python tests/support/mutants.py DIR.

A mutant is the package with one function changed in one place, for example ``<`` to ``<=``. It is killed when a test
fails. mutmut makes and tests the mutants in a copy of the checkout below DIR. The same command resumes an interrupted
run.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from math import sqrt
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("self_training", "measures", "opening", "training", "runs")
SURVIVED = (0, 5, 33)
"""Exit codes of tests that pass, and of no test."""
UNTESTED = (None, 255)
"""The last is that of a test that pytest did not find by the name that it gave it; mutmut takes it for a timeout."""


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
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{done.stderr}mutmut has failed; pytest in {project / 'mutants'} shows failing tests")
    return done.stdout


def exit_codes(project):
    """Of the tests of each mutant."""
    codes = {}
    for file in (project / "mutants").rglob("*.meta"):
        codes |= json.loads(file.read_text())["exit_code_by_key"]
    return codes


def in_random_order(names, seed):
    """The mutants of each room in the order of their hashes: a larger sample holds a smaller one."""

    def rank(name):
        return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()

    return {room: sorted((name for name in names if f".{room}." in name), key=rank) for room in ROOMS}


def report(found, mutants, each):
    """Print for each room its mutants, those in the sample and those that are killed, and of all rooms the share of
    killed mutants with its standard error."""
    print("| room | mutants | in the sample | killed |\n|---|---:|---:|---:|")
    total = sum(map(len, mutants.values()))
    share = 0.0
    variance = 0.0
    for room, names in mutants.items():
        killed = sum(found[name] not in SURVIVED for name in names[:each])
        print(f"| `{room}` | {len(names):,} | {each} | {killed} |")
        of_room = killed / each
        weight = len(names) / total
        share += weight * of_room
        variance += weight**2 * of_room * (1 - of_room) / max(each - 1, 1) * (1 - each / len(names))
    print(f"| all, weighted by mutants | | | {share:.1%} ± {sqrt(variance):.1%} |")


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
    found = exit_codes(project)
    mutants = in_random_order(found, arguments.seed)
    names = [name for of_room in mutants.values() for name in of_room[: arguments.each]]
    codes_to_test = UNTESTED + SURVIVED if arguments.again else UNTESTED
    untested = [name for name in names if found[name] in codes_to_test]
    if untested:
        mutmut(project, "run", "--max-children", "1", *untested)
        found = exit_codes(project)
    if any(found[name] in UNTESTED for name in names):
        sys.exit("pytest does not find each test by its name: give its parameters plain ids")
    survivors = [name for name in names if found[name] in SURVIVED]
    file = arguments.directory / "survivors.txt"
    file.write_text("\n".join(mutmut(project, "show", name) for name in survivors))
    report(found, mutants, arguments.each)
    print(f"What survived: {file}")


if __name__ == "__main__":
    main()
