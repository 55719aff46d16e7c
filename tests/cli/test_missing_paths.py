"""What is not there is said before torch is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
from tllib_ancon.cli.main import main
status = main(sys.argv[1:])
assert "torch" not in sys.modules
sys.exit(status)
"""
START = ["--checkpoint", "missing.pth"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adapt", ".", "-d", "ImageFolder", "-t", "x", *START], "checkpoint missing.pth is not a file"),
        (["predict", ".", *START], "checkpoint missing.pth is not a file"),
        (["evaluate", ".", "-t", "x", *START], "checkpoint missing.pth is not a file"),
        (["adapt", "missing", "-d", "ImageFolder", "-t", "x", *START], "dataset root missing is not a folder"),
        (["pretrain", "missing", "-d", "ImageFolder", "-s", "x"], "dataset root missing is not a folder"),
        (["run", "missing", "-d", "ImageFolder", "-s", "x", "-t", "y"], "dataset root missing is not a folder"),
        (["report", "missing"], "missing is not a folder; give run directories"),
    ],
)
def test_a_missing_path_needs_no_torch(tmp_path: Path, words: list[str], message: str) -> None:
    process = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 2, process.stderr
    assert message in process.stderr
    assert process.stderr.count("\n") == 1


def test_a_dataset_of_the_hub_has_no_folder(tmp_path: Path) -> None:
    words = ["predict", "name/of", "-d", "hf:name/of", *START]
    process = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, cwd=tmp_path)
    assert "checkpoint missing.pth is not a file" in process.stderr
