"""TLLib's own unmodified example scripts, from their training to the adaptation of the model that they left."""

import pytest

from tests.support.json_files import read_json
from tests.support.layouts import write_classes, write_list
from tests.support.tllib import EXAMPLES, requires_checkout, requires_tllib
from tllib_ancon.cli.main import main

pytestmark = [requires_tllib, requires_checkout]
SMALL = [
    *("--scratch", "--epochs", "1", "-b", "4", "-j", "0", "--seed", "0"),
    *("--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "32"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The words for Office-31, with two of its classes (the scripts fail where no epoch has an accuracy above 0), and
    for a user's own folders, whose classes are not in the order of their numbers."""
    office31 = tmp_path_factory.mktemp("office31")
    for name in ("amazon", "dslr", "webcam"):
        write_list(office31, name, images=24, classes=2)
    photos = tmp_path_factory.mktemp("photos")
    for domain in ("summer", "winter"):
        write_classes(photos / domain, ["class_1", "class_2", "class_10"], images=3)
    return {
        "Office31": [str(office31), "-d", "Office31", "-s", "A", "-t", "W", "-i", "6"],
        "ImageFolder": [str(photos), "-d", "ImageFolder", "-s", "summer", "-t", "winter", "-i", "2"],
    }


@pytest.mark.parametrize(
    ("name", "dataset", "arch"),
    [
        ("cdan", "Office31", "resnet18"),
        ("mdd", "Office31", "resnet18"),
        ("erm", "ImageFolder", "resnet18"),
        ("erm", "ImageFolder", "test_resnet"),
    ],
)
def test_script_to_adaptation(data, tmp_path, name, dataset, arch):
    """The adaptation starts from the accuracy that the script printed of its last epoch, which is latest.pth."""
    script = str(EXAMPLES / f"{name}.py")
    words = ["script", script, *data[dataset], "-a", arch, *SMALL, "--log", str(tmp_path)]
    assert main([*words, "--method", "ancon", "--epochs", "1", "--batch-size", "4", "--quiet"]) == 0
    config = read_json(tmp_path / "adapt" / "config.json")
    checkpoint = str(tmp_path / "checkpoints" / "latest.pth")
    assert {"checkpoint": checkpoint, "arch": arch, "image_size": 32, "epochs": 1}.items() <= config.items()
    lines = next(tmp_path.glob("train-*.txt")).read_text().splitlines()
    printed = next(line for line in lines if " * Acc@1" in line).split()[-1]
    result = read_json(tmp_path / "adapt" / "result.json")
    assert result["start"]["accuracy"] == pytest.approx(float(printed), abs=1e-2)
