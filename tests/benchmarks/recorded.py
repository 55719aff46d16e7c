"""What a shell script would run, recorded instead of run."""

import os
import shlex
import subprocess
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RECORDER = """#!/usr/bin/env bash
printf '%q ' "$(basename "$0")" "$@" >> "$RECORD"
echo >> "$RECORD"
"""


def commands(script, arguments, folder, **environment):
    """The words of every ``tllib-ancon`` and ``python`` that a script below ``benchmarks/`` starts.

    Args:
        folder: an empty one, to run in
        environment: variables that the script reads
    """
    for name in ("tllib-ancon", "python"):
        (folder / name).write_text(RECORDER)
        (folder / name).chmod(0o755)
    record = folder / "commands"
    search = f"{folder}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": search, "RECORD": str(record), **environment}
    subprocess.run([str(BENCHMARKS / script), *arguments], cwd=folder, env=variables, check=True)
    return [shlex.split(line) for line in record.read_text().splitlines()]
