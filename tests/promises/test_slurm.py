"""The array script of docs/cluster.md makes every run that ``--print-commands`` prints, source models first."""

import os
import shlex
import subprocess
import sys

from tests.support.places import ROOT, blocks_of
from tllib_ancon.cli.main import parse

SECTION = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8").partition("## Slurm")[2]
ARRAY_SCRIPT, SUBMISSION = blocks_of(SECTION, "sh")[:2]

TLLIB_ANCON = f"""#!/usr/bin/env bash
if [ "$1" = benchmark ]; then exec {sys.executable} -m tllib_ancon "$@"; fi
printf '%q ' "$@" >> made.txt
echo >> made.txt
"""
SBATCH = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
    case $1 in
        --array) range=$2; shift 2 ;;
        --dependency) [ "$2" = afterok:17 ]; shift 2 ;;
        --parsable) shift ;;
    esac
done
for number in $(seq "${range%-*}" "${range#*-}"); do SLURM_ARRAY_TASK_ID=$number bash "$@"; done
echo 17
"""
"""A Slurm that makes the tasks of an array one after another."""


def test_the_arrays_make_every_printed_run_with_its_words(tmp_path):
    (tmp_path / "array.sh").write_text(ARRAY_SCRIPT)
    for name, text in (("tllib-ancon", TLLIB_ANCON), ("sbatch", SBATCH)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": search}
    select = "--pairs Ar-Cl 'A?-P*' --seeds 0"
    words = SUBMISSION.replace("--print-commands", f"{select} --print-commands")
    subprocess.run(["bash", "-euo", "pipefail", "-c", words], cwd=tmp_path, env=environment, check=True)
    printed = (tmp_path / "commands.txt").read_text().splitlines()
    made = (tmp_path / "made.txt").read_text().splitlines()
    assert len(made) > 10
    assert [shlex.split(line) for line in made] == [shlex.split(line)[1:] for line in printed]
    chosen = [parse(shlex.split(line)).chosen for line in made]
    assert chosen == sorted(chosen, reverse=True)
    assert set(chosen) == {"pretrain", "adapt"}


def test_a_signal_to_the_batch_shell_reaches_the_run(tmp_path):
    """Slurm sends it to the shell of the script: the command has taken its place."""
    (tmp_path / "commands.txt").write_text("bash -c 'echo $PPID $$'\n")
    (tmp_path / "array.sh").write_text(f"echo $$\n{ARRAY_SCRIPT}")
    words = ["bash", "array.sh", "commands.txt"]
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    shell, parent_and_command = done.stdout.splitlines()
    assert parent_and_command.split()[1] == shell
