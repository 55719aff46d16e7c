"""A process whose partners never come says for whom it waits, and a signal ends it."""

import os
import signal
import subprocess
import sys

from tests.support.killable import launched_in_two

START = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""SIGINT is ignored where this was begun in the background."""
COMMAND = START + "from tllib_ancon.cli.main import main; sys.exit(main(['adapt', 'no-such-folder']))"


def test_a_launch_whose_partner_never_comes_ends_by_a_signal():
    launch = launched_in_two()[0]
    environment = {**os.environ, **launch, "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen([sys.executable, "-c", COMMAND], env=environment, stderr=subprocess.PIPE, text=True)
    waits = process.stderr.readline()
    assert "process 0 of 2" in waits
    assert launch["MASTER_PORT"] in waits
    process.send_signal(signal.SIGINT)
    _, ending = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert len(ending.splitlines()) == 1
