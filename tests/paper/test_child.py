from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.training.lock import FolderLock

PARENT = """
import subprocess, sys, time
from tllib_ancon.paper import child
print(subprocess.Popen(child.command(sys.argv[1:])).pid, flush=True)
time.sleep(120)
"""


def test_a_command_ends_when_its_parent_is_killed_and_lets_go_of_its_folder(tmp_path: Path) -> None:
    log, domains = tmp_path / "run", write_domains(tmp_path)
    words = ["pretrain", *small_arguments(domains), "-j", "1", "--epochs", "100000", "--log", str(log)]
    with subprocess.Popen([sys.executable, "-c", PARENT, *words], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        command = psutil.Process(int(parent.stdout.readline()))
        while not (log / "metrics.jsonl").is_file():
            assert command.is_running()
            time.sleep(0.05)
        workers = command.children()
        parent.kill()
    _, left = psutil.wait_procs([command, *workers], timeout=20)
    assert not left
    FolderLock(log).release()
