"""Which words of ``tllib-ancon script`` belong to the script, and which to the adaptation."""

import pytest

from tllib_ancon.cli.main import main

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--method")
parser.add_argument("--log")
print("its own method:", parser.parse_args().method)
"""


@pytest.mark.parametrize(
    ("words", "status", "printed"),
    [
        (["--method", "theirs", "--"], 0, "its own method: theirs"),
        (["--method", "theirs", "--", "--method", "ancon"], 2, "its own method: theirs"),
        (["--method", "theirs", "--method", "ancon"], 2, "its own method: theirs"),
        (["--method", "ancon"], 2, "its own method: None"),
        ([], 0, "its own method: None"),
    ],
)
def test_the_adaptation_begins_at_two_dashes_or_at_the_last_method(tmp_path, capsys, words, status, printed):
    script = tmp_path / "own.py"
    script.write_text(SCRIPT)
    command = ["script", str(script), "--log", str(tmp_path / "log"), *words]
    assert main(command) == status  # the adaptation misses the arguments of TLLib's scripts
    assert printed in capsys.readouterr().out
