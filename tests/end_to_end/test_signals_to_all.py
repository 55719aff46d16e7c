from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.domains_on_disk import small_arguments


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_process_group_is_one_line(domains: Path, tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "run"
    words = ["pretrain", *small_arguments(domains), "-j", "2", "--epochs", "10000", "--log", str(log)]
    command = [sys.executable, "-m", "tllib_ancon", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (log / "metrics.jsonl").is_file():
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, number)
        (line,) = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 128 + number
    assert line.startswith(f"tllib-ancon: stopped by {number.name} ")
