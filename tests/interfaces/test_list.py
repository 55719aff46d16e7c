"""`tllib-ancon list` and `--help-all` show each method with its options; `check` asks the class what it can do."""

import pytest
import torch
from torch import nn

from tllib_ancon import check, methods
from tllib_ancon.cli.main import main
from tllib_ancon.cli.parser import flag


def test_each_method_is_listed_with_its_options(capsys):
    assert main(["list", "methods"]) == 0
    text = capsys.readouterr().out
    blocks = {block.split()[0]: block for block in text.replace("\n  ", "\t").splitlines()}
    assert [*blocks] == [name for name in methods.names() if "+" not in name]
    for name, block in blocks.items():
        assert all(f"\t{flag(option)} " in block for option in methods.settings(name))
        assert "None" not in block.split("\t")[0]


@pytest.mark.parametrize(
    ("kind", "name"), [("networks", "resnet50"), ("layouts", "ImageFolder"), ("criteria", "infomax")]
)
def test_other_kinds_are_listed(kind, name, capsys):
    assert main(["list", kind]) == 0
    assert name in capsys.readouterr().out.split()


def test_options_of_a_method_stand_under_it(capsys):
    with pytest.raises(SystemExit):
        main(["adapt", "--help-all"])
    sections = capsys.readouterr().out.split("\n\n")
    (of_gce,) = [section for section in sections if section.startswith("options of gce:")]
    assert "--q X" in of_gce
    assert "--smoothing" not in of_gce


def test_check_asks_the_method_whether_it_trains(monkeypatch):
    methods.names()
    monkeypatch.setattr(methods, "REGISTERED", dict(methods.REGISTERED))

    @methods.register("counting")
    class Counting(methods.Method):
        trains = False

    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    result = check(model, torch.randn(24, 3, 8, 8), method="counting", workers=0)
    assert "none learns: counting trains nothing" in str(result)
