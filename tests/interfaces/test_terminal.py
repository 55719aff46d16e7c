"""The command as a process ends quietly: a reader that has gone, and Ctrl-C while it starts."""

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
