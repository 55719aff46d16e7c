"""The command as a process ends quietly: a reader that has gone, Ctrl-C while it starts, and one of many."""

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_a_reader_that_has_gone_ends_the_command_without_a_word(word):
    words = [sys.executable, "-m", "tllib_ancon", word]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() in (0, 141)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_changes_no_status(closed):
    command = f"{sys.executable} -m tllib_ancon --version {closed}"
    process = subprocess.run(command, shell=True, capture_output=True)
    assert (process.returncode, process.stderr) == (0, b"")


@pytest.mark.parametrize("module", ["cli.main", "toolkit.compat", "cli.commands"])
def test_ctrl_c_while_a_module_is_imported_ends_the_command_without_a_traceback(module):
    code = (
        "import os, runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'tllib_ancon.{module}':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.argv = ['tllib-ancon', 'evaluate']\n"
        "runpy.run_module('tllib_ancon', run_name='__main__', alter_sys=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 128 + signal.SIGINT
    assert ended.stderr in ("", "tllib-ancon: stopped by SIGINT; give the same command again\n")


PROGRAM = """
import atexit
from tllib_ancon.cli.main import _end_process

class Kept:
    def __del__(self):
        print("the interpreter ended")

kept = Kept()
atexit.register(_end_process, {status})
atexit.register(print, "handlers ran")
print("all was said", end=" ")
"""


@pytest.mark.parametrize(("status", "more"), [([0], ""), ([3], ""), ([], "the interpreter ended\n")])
def test_one_of_many_ends_after_its_handlers_and_before_the_interpreter(status, more):
    words = [sys.executable, "-c", PROGRAM.format(status=status)]
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    said = f"all was said handlers ran\n{more}"
    assert process.returncode == sum(status)
    assert process.stdout == said
    assert process.stderr == ""
