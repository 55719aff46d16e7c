"""TLLib's own example scripts, from their training to the adaptation."""

import json
from pathlib import Path

import pytest

from tests.layouts import write_list
from tests.toolkit.conftest import EXAMPLES, requires_checkout, requires_tllib
from tllib_ancon.cli.main import main

pytestmark = [requires_tllib, requires_checkout]


@pytest.fixture(scope="module")
def office31(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of its classes: TLLib's scripts fail where no epoch has an accuracy above 0."""
    root = tmp_path_factory.mktemp("office31")
    for name in ("amazon", "dslr", "webcam"):
        write_list(root, name, images=24, classes=2)
    return root


@pytest.mark.parametrize("name", ["cdan", "mdd", "erm"])
def test_script_to_adaptation(office31: Path, tmp_path: Path, name: str) -> None:
    arguments = [
        *("script", str(EXAMPLES / f"{name}.py"), str(office31), "-d", "Office31", "-s", "A", "-t", "W"),
        *("--scratch", "-a", "resnet18", "--epochs", "1", "-i", "6", "-b", "4", "-j", "0", "--seed", "0"),
        *("--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "32", "--log", str(tmp_path)),
    ]
    checkpoint = tmp_path / "checkpoints" / "latest.pth"
    adaptation = ["--method", "ancon", "--epochs", "1", "--batch-size", "8", "--quiet"]
    assert main([*arguments, *adaptation]) == 0
    config = json.loads((tmp_path / "adapt" / "config.json").read_text())
    taken = {"checkpoint": str(checkpoint), "arch": "resnet18", "target": ["W"], "resize_size": 32, "epochs": 1}
    assert taken.items() <= config.items()
    result = json.loads((tmp_path / "adapt" / "result.json").read_text())
    assert result["start"]["accuracy"] == pytest.approx(_printed_accuracy(tmp_path), abs=1e-2)


def _printed_accuracy(log: Path) -> float:
    """Of the script's last epoch, which is latest.pth: its own evaluation of the model that is adapted."""
    lines = next(log.glob("train-*.txt")).read_text().splitlines()
    return float(next(line for line in lines if " * Acc@1" in line).split()[-1])
